"""Other engines that write the platform's tables during a soak: deltalake, and Spark if it is asked for."""
