package host_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/carrelhost/carrel/host"
)

// The settings that the operator's guide shows are all there are, at their
// defaults; but for the models, which have none and are an example.
func TestTheOperatorsGuideShowsEverySettingAtItsDefault(t *testing.T) {
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, ok := strings.Cut(block, "\n```")
	if !ok {
		t.Fatal("the guide has no block of YAML")
	}
	var shown host.Config
	dec := yaml.NewDecoder(bytes.NewReader([]byte(block)))
	dec.KnownFields(true)
	if err := dec.Decode(&shown); err != nil {
		t.Fatal(err)
	}
	if err := shown.Validate(); err != nil {
		t.Errorf("the block is no configuration: %v", err)
	}
	local := host.Model{Provider: "local", Model: "llama3.2", Timeout: time.Minute}
	if len(shown.Models) != 1 || shown.Models["default"] != local || len(shown.Providers) != 1 {
		t.Errorf("the example of a model is %+v of %+v", shown.Models, shown.Providers)
	}
	shown.Models, shown.Providers = nil, nil
	want := host.DefaultConfig()
	want.AllowedHosts, want.AllowedOrigins = []string{}, []string{}
	if !reflect.DeepEqual(shown, want) {
		t.Errorf("the guide shows\n%+v\nthe defaults are\n%+v", shown, want)
	}
	// A setting whose default is the zero value is shown, too.
	var names map[string]any
	if err := yaml.Unmarshal([]byte(block), &names); err != nil {
		t.Fatal(err)
	}
	missing(t, reflect.TypeFor[host.Config](), names, "")
}

// missing reports the settings of a struct that a block does not have.
func missing(t *testing.T, of reflect.Type, names map[string]any, path string) {
	t.Helper()
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		value, shown := names[name]
		switch {
		case name == "-":
		case !shown:
			t.Errorf("the guide does not show %s%s", path, name)
		case f.Type.Kind() == reflect.Struct:
			inner, _ := value.(map[string]any)
			missing(t, f.Type, inner, path+name+".")
		}
	}
}
