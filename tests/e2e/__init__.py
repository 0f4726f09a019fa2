"""End-to-end tests share one platform; as a package they let go of it when the last of them is over."""
