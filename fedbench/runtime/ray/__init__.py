"""All that knows Ray of how a run is driven: the cluster, the driver and the hosts as actors, their places."""
