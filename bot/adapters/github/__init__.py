"""Pull requests on GitHub: what the owner of a workload has to change, as an edit of the file that it is kept in."""
