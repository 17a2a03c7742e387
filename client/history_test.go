package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carrelhost/carrel/client"
)

func TestAnExportEndsWellOnlyIfItIsWhole(t *testing.T) {
	const head, message, end = `{"format":"carrel.history/v1"}` + "\n", `{"seq":1}` + "\n", `{"end":true,"messages":1}` + "\n"
	long := `{"seq":1,"content":"` + strings.Repeat("x", 100_000) + `"}` + "\n"
	for name, c := range map[string]struct {
		body  string
		whole bool
	}{
		"with one message":                   {head + message + end, true},
		"with a long message":                {head + long + end, true},
		"without messages":                   {head + `{"end":true,"messages":0}` + "\n", true},
		"empty":                              {"", false},
		"only a head":                        {head, false},
		"without its end":                    {head + message, false},
		"cut in a message":                   {head + message[:5], false},
		"cut in its end":                     {head + message + end[:10], false},
		"cut just before the last break":     {head + message + strings.TrimSpace(end), false},
		"with a message too few":             {head + end, false},
		"with a message too many":            {head + message + message + end, false},
		"with an end that says it is none":   {head + message + `{"end":false,"messages":1}` + "\n", false},
		"with an end that is no JSON":        {head + message + `end` + "\n", false},
		"with an end as long as a message":   {head + message + `{"end":true,"messages":1` + strings.Repeat(" ", 200) + "}\n", false},
		"with something behind its end":      {head + message + end + message, false},
		"with an end as a message's content": {head + `{"content":"{\"end\":true,\"messages\":1}"}` + "\n", false},
	} {
		host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/memories/k/export" || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("asked for %s by %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			w.Header().Set("Content-Type", client.HistoryType)
			_, _ = io.WriteString(w, c.body)
		}))
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
		} {
			r, err := (&client.Client{Base: host.URL, Key: "secret"}).Export(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(reader(r))
			if string(got) != c.body || c.whole != (err == nil) || !c.whole && !errors.Is(err, client.ErrCutHistory) {
				t.Errorf("%s, read %s: %d bytes, %v", name, how, len(got), err)
			}
			if err := r.Close(); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
		}
		host.Close()
	}
}

func TestAnExportThatIsRefusedIsAProblem(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", client.ProblemType)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not_found","status":404}`)
	}))
	defer host.Close()
	_, err := (&client.Client{Base: host.URL}).Export(t.Context(), "k")
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Code != "not_found" {
		t.Errorf("got %v", err)
	}
}
