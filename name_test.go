package carrel_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
)

// The patterns that names are documented by.
var (
	slug       = regexp.MustCompile(`\A[a-z][a-z0-9-]{0,62}\z`)
	identifier = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,62}\z`)
	dotted     = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\z`)
	digest     = regexp.MustCompile(`\A[0-9a-f]{64}\z`)
)

// wantNames fails the test if a string is taken for a name that it is not, or
// the other way about.
func wantNames(t *testing.T, s string) {
	t.Helper()
	check := func(what string, err error, want bool) {
		t.Helper()
		if (err == nil) != want {
			t.Errorf("%q as %s: got %v, want it taken: %t", s, what, err, want)
		}
		if err != nil && carrel.CodeOf(err) != abi.BadRequest {
			t.Errorf("%q as %s: got %v, want bad_request", s, what, err)
		}
	}
	_, err := carrel.ParseTenantID(s)
	check("a tenant", err, slug.MatchString(s))
	_, err = carrel.ParsePluginName(s)
	check("a plugin", err, slug.MatchString(s))
	_, err = carrel.ParseMethodName(s)
	check("a method", err, identifier.MatchString(s))
	_, err = carrel.ParseServiceName(s)
	check("a service", err, len(s) <= abi.MaxServiceNameBytes && dotted.MatchString(s))
	d, err := carrel.ParseDigest(s)
	check("a digest", err, digest.MatchString(s) && s != strings.Repeat("0", 64))
	if err == nil && d.String() != s {
		t.Errorf("the digest %q is shown as %q", s, d)
	}
}

// names are such and what comes near them, in every kind of name.
func names() []string {
	return []string{
		"", "a", "Z", "_", "0", "-", ".", "a.", ".a", "a..b", "a.b", "a.0", "com.acme.MyChat", "a-b", "a-", "-a", "a_b", "_0", "a0",
		"a\n", "\na", "a\x00", "ä", "a b", "a/b", "{", "`", "@", "[", "/", ":", "a{", "a`", "a@", "a[", "a/", "a:",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("9", 64), strings.Repeat("0", 64),
		strings.Repeat("A", 64), strings.Repeat("g", 64), strings.Repeat("a", 63) + "g",
		strings.Repeat("a", abi.MaxServiceNameBytes), strings.Repeat("a", abi.MaxServiceNameBytes+1), "a." + strings.Repeat("b", 80),
	}
}

func TestNamesAreWhatTheirPatternsSay(t *testing.T) {
	for _, s := range names() {
		wantNames(t, s)
	}
	for c := range 256 { // at the beginning, and later
		wantNames(t, string([]byte{byte(c)}))
		wantNames(t, string([]byte{'a', byte(c)}))
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range names() {
		f.Add(s)
	}
	f.Fuzz(wantNames)
}

func TestADigestIsLoggedAsItIsWritten(t *testing.T) {
	d := carrel.DigestOf([]byte("module"))
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("said", "digest", d, "all", []carrel.Digest{d})
	var line struct {
		Digest string
		All    []string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Digest != d.String() || len(line.All) != 1 || line.All[0] != d.String() {
		t.Errorf("the log in JSON is %s, %v", &out, err)
	}
	out.Reset()
	slog.New(slog.NewTextHandler(&out, nil)).Info("said", "digest", d)
	if !strings.Contains(out.String(), " digest="+d.String()+"\n") {
		t.Errorf("the log is %s", &out)
	}
}
