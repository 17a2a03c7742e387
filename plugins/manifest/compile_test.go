package manifest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carrelhost/carrel/plugins/manifest"
)

func TestCompileReturnsTheSchemasOfEachMethod(t *testing.T) {
	const named = `"params":{"type":"object","required":["n"]},`
	m, schemas, err := manifest.Compile(t.Context(), []byte(withService(`"methods":[`+
		`{"name":"a","kind":"handler",`+named+`"export":"a"},`+
		`{"name":"b","kind":"handler",`+named+`"export":"b","output":{"type":"integer"}},`+
		`{"name":"c","kind":"handler","export":"c"}]`)), manifest.Known{})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range m.Services[0].Methods {
		if schemas[string(method.Params)] == nil {
			t.Errorf("%s has no schema of its params", method.Name)
		}
		if isText := manifest.IsText(method.Output); isText != (method.Name != "b") || isText != (schemas[string(method.Output)] == nil) {
			t.Errorf("%s has the output %s and the schema %v of it", method.Name, method.Output, schemas[string(method.Output)])
		}
	}
	if len(schemas) != 3 {
		t.Errorf("there are %d schemas, want the default's, that of two methods' params and one of an output", len(schemas))
	}
}

func TestCompileEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := manifest.Compile(ctx, []byte(withMethod(msgParams)), manifest.Known{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
