package httpapi_test

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/quarantine"
	"github.com/carrelhost/carrel/internal/testenv"
)

// quarantined restarts the host as after two crashes at which a version ran.
func quarantined(w *witness, key string) {
	wasm := testenv.Pack(w.t, twoServices)
	w.env.Stop()
	l := quarantine.Open(filepath.Join(w.env.Data(), "quarantine.json"), time.Now(), slog.New(slog.DiscardHandler))
	for range quarantine.Crashes {
		if _, err := l.Crashed(time.Now(), []quarantine.Suspect{{Digest: carrel.DigestOf(wasm), Tenant: "acme"}, {Digest: carrel.DigestOf(nil)}}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.env.Restart()

	const all, one = "/admin/v1/quarantine", "/admin/v1/quarantine/{digest}"
	admin, digest := request{key: testenv.AdminKey}, "/admin/v1/quarantine/"+carrel.DigestOf(wasm).String()
	w.send("GET "+all, all, admin, http.StatusOK)
	first := w.send("GET "+all, all+"?limit=1", admin, http.StatusOK)
	w.send("GET "+all, all+"?limit=1&after="+first["next"].(string), admin, http.StatusOK)
	w.send("GET "+all, all+"?after=x", admin, http.StatusBadRequest)
	w.send("GET "+all, all, request{key: key}, http.StatusUnauthorized)
	v := w.send("GET "+pVer, p1+"/duo/versions/1", request{key: key}, http.StatusOK)
	a := w.send("GET /api/v1/versions/{digest}", "/api/v1/versions/"+carrel.DigestOf(wasm).String(), request{key: key}, http.StatusOK)
	if v["quarantined"] == nil || a["quarantined"] == nil {
		w.t.Errorf("the version is %v, its admission %v", v, a)
	}
	p := w.send("GET "+pOne, p1+"/duo", request{key: key}, http.StatusOK)
	if active, _ := p["active"].(map[string]any); active["quarantined"] == nil {
		w.t.Errorf("the plugin is %v", p)
	}
	w.send("POST "+p1, p1, request{key: key, kind: "application/wasm", body: string(wasm)}, http.StatusForbidden)
	w.send("PUT "+pOne+"/active", p1+"/duo/active", asJSON(key, `{"version":"1"}`), http.StatusForbidden)
	w.send("DELETE "+one, digest, request{key: key}, http.StatusUnauthorized)
	w.send("DELETE "+one, all+"/none", admin, http.StatusBadRequest)
	w.send("DELETE "+one, digest, admin, http.StatusNoContent)
	w.send("DELETE "+one, digest, admin, http.StatusNotFound)
	w.send("PUT "+pOne+"/active", p1+"/duo/active", asJSON(key, `{"version":"1"}`), http.StatusOK)
}
