// Says how Argo CD and Flux see objects: KUBECONFIG < manifests.json, a List of objects.
//
// Each controller compares with its own library. Prints one line of JSON for each object that a
// controller would call changed, with what it has and what it would become; nothing for the others.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-openapi/pkg/util/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	argoManager = "argocd-controller"
	fluxManager = "kustomize-controller"
)

type difference struct {
	By     string `json:"by"`
	Object string `json:"object"`
	Live   any    `json:"live"`
	Target any    `json:"target"`
}

// dryRunner is what Argo CD's diff on the server asks the server by.
type dryRunner struct{ client.Client }

func (server dryRunner) Run(
	ctx context.Context, object *unstructured.Unstructured, manager string,
) (string, error) {
	applied := object.DeepCopy()
	err := server.Patch(ctx, applied, client.Apply, client.DryRunAll, client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		return "", err
	}
	text, err := applied.MarshalJSON()
	return string(text), err
}

func byArgo(
	by string, target, live *unstructured.Unstructured, options ...diff.Option,
) (*difference, error) {
	result, err := diff.Diff(target.DeepCopy(), live.DeepCopy(), options...)
	if err != nil || !result.Modified {
		return nil, err
	}
	return &difference{by, name(target), json.RawMessage(result.NormalizedLive), json.RawMessage(result.PredictedLive)}, nil
}

func byFlux(
	ctx context.Context, server client.Client, target *unstructured.Unstructured,
) (*difference, error) {
	manager := ssa.NewResourceManager(server, nil, ssa.Owner{Field: fluxManager, Group: "kustomize.toolkit.fluxcd.io"})
	entry, live, merged, err := manager.Diff(ctx, target.DeepCopy(), ssa.DefaultDiffOptions())
	if err != nil || entry.Action == ssa.UnchangedAction {
		return nil, err
	}
	return &difference{"flux " + string(entry.Action), name(target), live, merged}, nil
}

func name(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

func differences(
	ctx context.Context, server client.Client, parser *managedfields.GvkParser, target *unstructured.Unstructured,
) ([]*difference, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(target.GroupVersionKind())
	if err := server.Get(ctx, client.ObjectKeyFromObject(target), live); err != nil {
		return nil, err
	}
	// As Argo CD compares an application as it is, with ServerSideApply=true, and with
	// ServerSideDiff=true.
	ways := []struct {
		name    string
		options []diff.Option
	}{
		{"argo-cd", nil},
		{"argo-cd ServerSideApply", []diff.Option{
			diff.WithStructuredMergeDiff(true), diff.WithGVKParser(parser), diff.WithManager(argoManager),
		}},
		{"argo-cd ServerSideDiff", []diff.Option{
			diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(dryRunner{server}),
			diff.WithGVKParser(parser), diff.WithManager(argoManager),
		}},
	}
	var listed []*difference
	for _, way := range ways {
		found, err := byArgo(way.name, target, live, way.options...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		listed = append(listed, found)
	}
	found, err := byFlux(ctx, server, target)
	return append(listed, found), err
}

func schemas(config *rest.Config) (*managedfields.GvkParser, error) {
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	document, err := server.OpenAPISchema()
	if err != nil {
		return nil, err
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		return nil, err
	}
	return managedfields.NewGVKParser(models, false)
}

func run(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	server, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	parser, err := schemas(config)
	if err != nil {
		return err
	}
	var targets unstructured.UnstructuredList
	if err := json.NewDecoder(os.Stdin).Decode(&targets); err != nil {
		return err
	}
	output := json.NewEncoder(os.Stdout)
	for index := range targets.Items {
		target := &targets.Items[index]
		listed, err := differences(context.Background(), server, parser, target)
		if err != nil {
			return fmt.Errorf("%s: %w", name(target), err)
		}
		for _, found := range listed {
			if found == nil {
				continue
			}
			if err := output.Encode(found); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
