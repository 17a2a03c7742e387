package testenv

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// Submit uploads without waiting and returns the digest.
func (a *Actor) Submit(wasm []byte, o client.UploadOptions) string {
	a.t.Helper()
	began, err := a.Client().UploadAsync(a.t.Context(), wasm, o)
	a.check("submit", err)
	if want := carrel.DigestOf(wasm).String(); began.Digest != want {
		a.t.Fatalf("the digest is %s, want %s", began.Digest, want)
	}
	return began.Digest
}

// Admission returns how far an upload is.
func (a *Actor) Admission(digest string) client.Admission {
	a.t.Helper()
	got, err := a.Client().Admission(a.t.Context(), digest)
	a.check("read the admission "+digest, err)
	return got
}

// NoAdmission checks that the actor sees no admission of a digest, just as if
// there had never been one.
func (a *Actor) NoAdmission(digest string) {
	a.t.Helper()
	var bodies [2][]byte
	for i, d := range []string{digest, strings.Repeat("1", 64)} {
		ans := a.Do(http.MethodGet, "/api/v1/versions/"+d, "")
		if ans.Status != http.StatusNotFound {
			a.t.Errorf("%s answers %d %s", d, ans.Status, ans.Body)
		}
		bodies[i] = bytes.ReplaceAll(ans.Body, []byte(ans.Problem(a.t).RequestID), nil)
	}
	if !bytes.Equal(bodies[0], bodies[1]) {
		a.t.Errorf("the answers differ: %s and %s", bodies[0], bodies[1])
	}
}
