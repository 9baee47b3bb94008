"""IPUs, IPU-Links, hosts and the named systems that are built of them."""
