"""A client for sandboxd, a service that provides isolated Linux sandboxes."""
