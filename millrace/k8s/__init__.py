"""Client apps on Kubernetes: an agreement in, manifests out (`render`), and a cluster made to hold them (`apply`)."""
