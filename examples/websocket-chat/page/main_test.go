package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/client"
)

func TestWithoutAHostThePageIsToldWhereItWasLookedFor(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	w := httptest.NewRecorder()
	handler(&client.Client{Base: gone.URL, Key: "k"}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ticket", nil))
	if w.Code != http.StatusBadGateway || !strings.HasPrefix(w.Body.String(), "no host answers at "+gone.URL+" (") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestThePageSaysWhyItWasRefusedAndAsksForNoIcon(t *testing.T) {
	w := httptest.NewRecorder()
	handler(&client.Client{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, want := range []string{`<link rel="icon" href="data:,">`, `CARREL_ALLOWED_ORIGINS=" + location.origin`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page has no %s", want)
		}
	}
}
