// Writes the SDK of a package, as `pulumi package add` does: LANGUAGE FOLDER < schema.json.
//
// The command itself asks the language hosts of its own release for this, which are no module.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	gogen "github.com/pulumi/pulumi/pkg/v3/codegen/go"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

func generate(language string) (map[string][]byte, error) {
	var spec schema.PackageSpec
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		return nil, err
	}
	bound, diagnostics, err := schema.BindSpec(spec, schema.NewNullLoader(), schema.ValidationOptions{})
	if err != nil {
		return nil, err
	}
	if len(diagnostics) > 0 {
		return nil, diagnostics
	}
	// With a go.mod of its own, so that a program's go.mod leads to the folder.
	bound.SupportPack = true
	const tool = "divvy"
	switch language {
	case "nodejs":
		return nodejs.GeneratePackage(tool, bound, nil, nil, true, nil)
	case "go":
		return gogen.GeneratePackage(tool, bound, nil)
	}
	return nil, fmt.Errorf("no language %s: nodejs or go", language)
}

func write(folder string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	files, err := generate(os.Args[1])
	if err == nil {
		err = write(os.Args[2], files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
