"""HTML reports: what they show, their text and their pages."""
