package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

func TestAPushWhoseOutcomeIsUnknownSaysHowToLook(t *testing.T) {
	const active, refused = `{"state":"active","plugin":"bot"}`, `{"state":"refused","problem":{"code":"invalid_module"}}`
	for name, tc := range map[string]struct {
		answers map[string]string // by the path's folder; what is missing is denied
		fails   bool
		says    bool
	}{
		"one that is active":                     {answers: map[string]string{"versions": active, "plugins": `{}`}},
		"one that was refused":                   {answers: map[string]string{"versions": refused}, fails: true},
		"one that may not be watched":            {fails: true, says: true},
		"one whose version may not be looked at": {answers: map[string]string{"versions": active}, fails: true, says: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, there := tc.answers[strings.Split(r.URL.Path, "/")[3]]
				if r.Method == http.MethodPost {
					body, there = `{"state":"linting"}`, true
				}
				if !there {
					w.Header().Set("Content-Type", client.ProblemType)
					w.WriteHeader(http.StatusUnauthorized)
					body = `{"code":"unauthenticated"}`
				}
				_, _ = w.Write([]byte(body))
			}))
			defer s.Close()
			var stderr bytes.Buffer
			_, err := upload(t.Context(), env{stderr: &stderr}, &client.Client{Base: s.URL}, []byte("module"), client.UploadOptions{})
			if (err != nil) != tc.fails {
				t.Errorf("it ended with %v", err)
			}
			hint := "carrel push --status " + carrel.DigestOf([]byte("module")).String()
			if says := strings.Contains(stderr.String(), hint); says != tc.says {
				t.Errorf("it ended with %v and said %q", err, &stderr)
			}
		})
	}
}
