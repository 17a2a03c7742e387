package openai_test

import (
	"testing"

	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/model/modeltest"
	"github.com/carrelhost/carrel/host/model/openai"
)

// open returns a provider that the test's cleanup closes.
func open(t testing.TB, c openai.Config) *openai.Provider {
	t.Helper()
	p, err := openai.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestContract(t *testing.T) {
	modeltest.Run(t, func(t testing.TB, baseURL string) model.Provider {
		return open(t, openai.Config{BaseURL: baseURL, APIKey: modeltest.Key})
	})
}
