"""Suites as folders of data: create one and check one."""
