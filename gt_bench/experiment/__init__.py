"""Recipe + data + seed -> record; versions and golden values."""
