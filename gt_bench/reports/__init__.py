"""Result pages, paper tables and comparisons."""
