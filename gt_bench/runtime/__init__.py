"""Threads, memory, signals, devices and the worker pool."""
