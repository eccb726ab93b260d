"""Threads, memory, signals, devices and worker processes."""
