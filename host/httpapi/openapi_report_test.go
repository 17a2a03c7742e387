package httpapi_test

import (
	"slices"
	"testing"

	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/image"
	"github.com/carrelhost/carrel/internal/testenv"
	"github.com/carrelhost/carrel/plugins"
)

// TestTheReportsWordsAreListed: every value that a host may write, in order.
func TestTheReportsWordsAreListed(t *testing.T) {
	doc := openAPI(t, testenv.New(t, testenv.Config()))
	var classes []string
	for _, c := range plugins.Classes() {
		classes = append(classes, string(c))
	}
	for pointer, want := range map[string][]string{
		"class":                       classes,
		"path":                        {sandbox.PathPrompt, sandbox.PathReset, sandbox.PathImage, sandbox.PathPlain},
		"warmup":                      {plugins.WarmupKept, plugins.WarmupDiscarded},
		"measured/properties/restore": {image.PageScan.String(), image.Madvise.String(), image.Copy.String()},
	} {
		var listed []string
		for _, v := range list(at(doc, "/components/schemas/Report/properties/"+pointer+"/enum")) {
			word, _ := v.(string)
			listed = append(listed, word)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("the document lists %q for %s, hosts write %q", listed, pointer, want)
		}
	}
}
