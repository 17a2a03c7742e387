package manifest_test

import (
	"testing"

	"github.com/carrelhost/carrel/plugins/manifest"
)

func TestCurrent(t *testing.T) {
	for name, tc := range map[string]struct{ stored, want string }{
		"a seed of the model is spelt anew": {
			`{"services":[{"methods":[{"name":"a"},{"seed":7,"name":"b"}]}]}`, `{"services":[{"methods":[{"name":"a"},{"randomSeed":7,"name":"b"}]}]}`,
		},
		"example turns stay": {`{"services":[{"methods":[{"seed":[{"user":"u"}]}]}]}`, `{"services":[{"methods":[{"seed":[{"user":"u"}]}]}]}`},
		"a param of that name stays": {
			`{"services":[{"methods":[{"params":{"seed":7},"seed":1e2}]}]}`, `{"services":[{"methods":[{"params":{"seed":7},"randomSeed":1e2}]}]}`,
		},
		"a text of that name stays": {`{"name":"seed","description":"\"seed\":7"}`, `{"name":"seed","description":"\"seed\":7"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := manifest.Current([]byte(tc.stored))
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	t.Run("what is cut off is an error", func(t *testing.T) {
		if got, err := manifest.Current([]byte(`{"seed":`)); err == nil {
			t.Errorf("got %s", got)
		}
	})
}
