// Pulumi's provider for Kubernetes, from its own packages.
package main

import (
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

func main() {
	schema := []byte(`{"name": "kubernetes", "version": "` + version.Version + `"}`)
	provider.Serve("kubernetes", version.Version, schema, []byte("{}"))
}
