"""The command line, the server and the demo."""
