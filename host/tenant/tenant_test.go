package tenant_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/tenant"
	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/memstore"
)

var noon = time.Date(2026, 3, 4, 13, 0, 0, 0, time.FixedZone("", 3600))

// directory returns a directory over an empty store with the tenants acme and
// other.
func directory(t *testing.T) (*tenant.Directory, *memstore.Store) {
	t.Helper()
	s := memstore.New(memstore.Config{})
	d := tenant.New(tenant.Config{Store: s, Now: func() time.Time { return noon }})
	for _, id := range []carrel.TenantID{"acme", "other"} {
		if _, err := d.CreateTenant(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return d, s
}

func wantCode(t *testing.T, err error, want abi.Code) {
	t.Helper()
	if carrel.CodeOf(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestSecretsAreFreshAndUsable(t *testing.T) {
	d, _ := directory(t)
	seen := map[string]bool{}
	for range 1000 {
		s, err := d.NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		if seen[s] || len(s) != len("carrel_")+43 || !strings.HasPrefix(s, "carrel_") || tenant.CheckSecret(s) != nil {
			t.Fatalf("got %q", s)
		}
		seen[s] = true
	}
}

func TestASecretNeedsAllItsRandomness(t *testing.T) {
	s := memstore.New(memstore.Config{})
	d := tenant.New(tenant.Config{Store: s, Rand: bytes.NewReader(make([]byte, 31))})
	if secret, err := d.NewSecret(); !errors.Is(err, io.ErrUnexpectedEOF) || secret != "" {
		t.Errorf("got %q, %v", secret, err)
	}
	if _, err := d.CreateTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if k, secret, err := d.MintAsAdmin(t.Context(), tenant.Mint{Tenant: "acme", Role: carrel.RoleOwner}); err == nil {
		t.Errorf("minted %+v with %q", k, secret)
	}
}

func TestCheckSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		secret string
		ok     bool
	}{
		"32 printable characters are enough": {strings.Repeat("a", 32), true},
		"256 are not too many":               {strings.Repeat("~", 256), true},
		"punctuation is fine":                {strings.Repeat("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", 2), true},
		"31 are too few":                     {strings.Repeat("a", 31), false},
		"257 are too many":                   {strings.Repeat("a", 257), false},
		"nothing is no secret":               {"", false},
		"a space is refused":                 {strings.Repeat("a", 32) + " b", false},
		"a line break is refused":            {strings.Repeat("a", 32) + "\n", false},
		"a DEL is refused":                   {strings.Repeat("a", 32) + "\x7f", false},
		"letters beyond ASCII are refused":   {strings.Repeat("é", 32), false},
		"a NUL is refused":                   {"\x00" + strings.Repeat("a", 32), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := tenant.CheckSecret(tc.secret)
			if tc.ok {
				wantCode(t, err, abi.OK)
				return
			}
			wantCode(t, err, abi.BadRequest)
			if tc.secret != "" && strings.Contains(err.Error(), tc.secret) {
				t.Error("the error shows the secret")
			}
		})
	}
}

func TestAuthenticate(t *testing.T) {
	d, s := directory(t)
	minted, secret, err := d.MintAsAdmin(t.Context(), tenant.Mint{
		Tenant: "acme", Role: carrel.RoleCaller, Name: "backend", Subject: "ann", AssertSubject: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if minted.Hash != sha256.Sum256([]byte(secret)) || !strings.HasPrefix(string(minted.ID), "key_") || !minted.CreatedAt.Equal(noon) {
		t.Errorf("minted %+v", minted)
	}
	got, err := d.Authenticate(t.Context(), secret)
	if err != nil || got != minted {
		t.Errorf("got %+v, %v, want %+v", got, err, minted)
	}
	for name, wrong := range map[string]string{
		"no secret":                "",
		"another secret":           strings.Repeat("x", 50),
		"the secret and a blank":   secret + " ",
		"a part of the secret":     secret[:len(secret)-1],
		"the secret in capitals":   strings.ToUpper(secret),
		"the key's id":             string(minted.ID),
		"the hash itself":          string(minted.Hash[:]),
		"more than a secret holds": strings.Repeat("x", tenant.MaxSecretBytes+1),
		"a megabyte":               strings.Repeat("x", 1<<20),
	} {
		k, err := d.Authenticate(t.Context(), wrong)
		if carrel.CodeOf(err) != abi.Unauthenticated || k != (store.APIKey{}) {
			t.Errorf("%s: got %+v, %v", name, k, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.Authenticate(ended, secret)
	wantCode(t, err, abi.Canceled)
	_, unused, err := d.MintAsAdmin(t.Context(), tenant.Mint{Tenant: "acme", Role: carrel.RoleCaller})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = d.Authenticate(t.Context(), unused)
	wantCode(t, err, abi.Internal) // a store that fails is no reason to doubt the key
	if k, err := d.Authenticate(t.Context(), secret); err != nil || k != minted {
		t.Errorf("a key that was used before: got %+v, %v, want it without a read", k, err)
	}
}

func text(s string) *string { return &s }

func TestCaller(t *testing.T) {
	key := func(subject carrel.Subject, assert bool) store.APIKey {
		return store.APIKey{ID: "key_1", Tenant: "acme", Role: carrel.RoleCaller, Subject: subject, AssertSubject: assert}
	}
	for name, tc := range map[string]struct {
		key      store.APIKey
		asserted *string
		subject  carrel.Subject
		code     abi.Code
	}{
		"a plain key acts for nobody":                             {key("", false), nil, "", abi.OK},
		"a key with a fixed subject acts for it":                  {key("ann", false), nil, "ann", abi.OK},
		"an asserting key that asserts nothing acts for nobody":   {key("", true), nil, "", abi.OK},
		"an asserting key acts for whom it says":                  {key("", true), text("bob"), "bob", abi.OK},
		"a subject of 256 bytes is allowed":                       {key("", true), text(strings.Repeat("b", 256)), carrel.Subject(strings.Repeat("b", 256)), abi.OK},
		"a fixed and asserting key may say what it is":            {key("ann", true), text("ann"), "ann", abi.OK},
		"a fixed and asserting key keeps its subject if silent":   {key("ann", true), nil, "ann", abi.OK},
		"a fixed and asserting key may not contradict itself":     {key("ann", true), text("bob"), "", abi.Forbidden},
		"a fixed subject is compared byte for byte":               {key("ann", true), text("Ann"), "", abi.Forbidden},
		"a plain key may not assert":                              {key("", false), text("bob"), "", abi.Forbidden},
		"a fixed key may not assert even its own":                 {key("ann", false), text("ann"), "", abi.Forbidden},
		"a plain key that asserts nonsense is forbidden, not bad": {key("", false), text(""), "", abi.Forbidden},
		"an empty subject is no subject":                          {key("", true), text(""), "", abi.BadRequest},
		"a subject of 257 bytes is too long":                      {key("", true), text(strings.Repeat("b", 257)), "", abi.BadRequest},
		"a subject has no control characters":                     {key("", true), text("a\tb"), "", abi.BadRequest},
		"a subject is UTF-8":                                      {key("", true), text("a\xff"), "", abi.BadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tenant.Caller(tc.key, tc.asserted)
			wantCode(t, err, tc.code)
			want := carrel.Caller{Tenant: "acme", Key: "key_1", Role: carrel.RoleCaller, Subject: tc.subject}
			if tc.code == abi.OK && got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Whatever a request asserts, a key without AssertSubject never changes whom
// it acts for, and a fixed subject is never left.
func TestNoAssertionLeavesAFixedSubject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := store.APIKey{
			Tenant: "acme", ID: "key_1", Role: carrel.RoleCaller, AssertSubject: rapid.Bool().Draw(t, "assert"),
			Subject: carrel.Subject(rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "fixed")),
		}
		asserted := rapid.Ptr(rapid.OneOf(rapid.SampledFrom([]string{"ann", "bob"}), rapid.String()), true).Draw(t, "asserted")
		c, err := tenant.Caller(k, asserted)
		if err != nil {
			return
		}
		if k.Subject != "" && c.Subject != k.Subject || !k.AssertSubject && c.Subject != k.Subject {
			t.Errorf("%+v acts for %q", k, c.Subject)
		}
		if c.Tenant != k.Tenant || c.Key != k.ID || c.Role != k.Role {
			t.Errorf("%+v became %+v", k, c)
		}
	})
}

func TestCreateTenant(t *testing.T) {
	d, _ := directory(t)
	_, err := d.CreateTenant(t.Context(), "acme")
	wantCode(t, err, abi.BadRequest)
	created, err := d.CreateTenant(t.Context(), "new")
	if err != nil || created.ID != "new" || !created.CreatedAt.Equal(noon) {
		t.Errorf("got %+v, %v", created, err)
	}
	list, err := d.List(t.Context(), "acme", 2)
	if err != nil || len(list) != 2 || list[0].ID != "new" || list[1].ID != "other" {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestMintAsAdmin(t *testing.T) {
	d, _ := directory(t)
	mint := func(m tenant.Mint) error {
		k, secret, err := d.MintAsAdmin(t.Context(), m)
		if err != nil && (k != (store.APIKey{}) || secret != "") {
			t.Errorf("got %+v and %q with an error", k, secret)
		}
		return err
	}
	owner := tenant.Mint{Tenant: "acme", Role: carrel.RoleOwner}
	wantCode(t, mint(owner), abi.OK)
	wantCode(t, mint(owner), abi.Forbidden)
	wantCode(t, mint(tenant.Mint{Tenant: "other", Role: carrel.RoleOwner}), abi.OK) // each tenant has its own first
	for _, r := range []carrel.KeyRole{carrel.RolePublisher, carrel.RoleCaller, carrel.RoleViewer} {
		wantCode(t, mint(tenant.Mint{Tenant: "acme", Role: r}), abi.OK)
		wantCode(t, mint(tenant.Mint{Tenant: "acme", Role: r}), abi.OK)
		wantCode(t, mint(tenant.Mint{Tenant: "nobody", Role: r}), abi.NotFound)
	}
	wantCode(t, mint(tenant.Mint{Tenant: "nobody", Role: carrel.RoleOwner}), abi.NotFound)
	wantCode(t, mint(tenant.Mint{Tenant: "acme", Role: carrel.RoleCaller, Name: strings.Repeat("n", 128)}), abi.OK)
	long := mint(tenant.Mint{Tenant: "acme", Role: carrel.RoleCaller, Name: strings.Repeat("n", 129)})
	wantCode(t, long, abi.BadRequest)
	if e, ok := errors.AsType[*carrel.Error](long); !ok || e.Limit != "keyName" {
		t.Errorf("got %v, want the limit named", long)
	}
}

func TestOfTwentyFirstOwnersOneIsMade(t *testing.T) {
	d, _ := directory(t)
	var all sync.WaitGroup
	start := make(chan struct{})
	outcomes, secrets := make(chan error, 20), make(chan string, 20)
	for range 20 {
		all.Go(func() {
			<-start
			_, secret, err := d.MintAsAdmin(t.Context(), tenant.Mint{Tenant: "acme", Role: carrel.RoleOwner})
			outcomes <- err
			if err == nil {
				secrets <- secret
			}
		})
	}
	close(start)
	all.Wait()
	close(outcomes)
	refused := 0
	for err := range outcomes {
		if carrel.CodeOf(err) == abi.Forbidden {
			refused++
		}
	}
	if len(secrets) != 1 || refused != 19 {
		t.Fatalf("%d owners were made, %d refused", len(secrets), refused)
	}
	if k, err := d.Authenticate(t.Context(), <-secrets); err != nil || k.Role != carrel.RoleOwner {
		t.Errorf("the owner is %+v, %v", k, err)
	}
}

func TestPresetOwner(t *testing.T) {
	d, _ := directory(t)
	secret := strings.Repeat("s", 40)
	preset := func(id carrel.TenantID, secret string, created bool, code abi.Code) {
		t.Helper()
		got, err := d.PresetOwner(t.Context(), id, secret)
		wantCode(t, err, code)
		if got != created {
			t.Errorf("created is %v", got)
		}
	}
	preset("acme", secret, true, abi.OK)
	first, err := d.Authenticate(t.Context(), secret)
	if err != nil || first.Tenant != "acme" || first.Role != carrel.RoleOwner {
		t.Fatalf("got %+v, %v", first, err)
	}
	preset("acme", secret, false, abi.OK)
	if again, err := d.Authenticate(t.Context(), secret); err != nil || again != first {
		t.Errorf("the same secret again is %+v, was %+v (%v)", again, first, err)
	}
	preset("acme", strings.Repeat("r", 40), true, abi.OK) // a tenant may have many owners
	preset("other", secret, false, abi.BadRequest)
	preset("nobody", strings.Repeat("q", 40), false, abi.NotFound)
	preset("acme", "short", false, abi.BadRequest)

	_, caller, err := d.MintAsAdmin(t.Context(), tenant.Mint{Tenant: "acme", Role: carrel.RoleCaller})
	if err != nil {
		t.Fatal(err)
	}
	preset("acme", caller, false, abi.BadRequest)
	// A preset owner is the first one: the administrator makes no other.
	_, _, err = d.MintAsAdmin(t.Context(), tenant.Mint{Tenant: "acme", Role: carrel.RoleOwner})
	wantCode(t, err, abi.Forbidden)
}

func TestAdmin(t *testing.T) {
	secret := strings.Repeat("s", 40)
	a, err := tenant.NewAdmin(secret)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Is(secret) {
		t.Error("the administrator is not known by its key")
	}
	for _, wrong := range []string{"", secret + "s", secret[1:], strings.ToUpper(secret), fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))} {
		if a.Is(wrong) {
			t.Errorf("%q is the administrator", wrong)
		}
	}
	_, err = tenant.NewAdmin("short")
	wantCode(t, err, abi.BadRequest)
	if (tenant.Admin{}).Is("") {
		t.Error("without a key anybody is the administrator")
	}
}
