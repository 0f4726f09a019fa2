"""Runs a function in a process of its own, whose memory, time, files and bytes written the kernel bounds."""
