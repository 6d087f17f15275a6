"""Where the application is: under which path of whose server, and behind which proxy."""
