"""Fault tests share one platform; as a package they stop it when the last of them is over."""
