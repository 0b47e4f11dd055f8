"""The links between nodes: TCP proxies that can be slowed, starved and cut through Toxiproxy's HTTP API."""
