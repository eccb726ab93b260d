"""Published numbers and table layouts."""
