package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/carrelhost/carrel/internal/testenv"
)

// witness sends requests and holds requests and answers against the document.
type witness struct {
	t       *testing.T
	env     *testenv.Env
	doc     node
	schemas *jsonschema.Compiler
	seen    map[string]bool // operations that succeeded
}

const (
	documentURL = "https://carrel.example/openapi.json"
	moduleBytes = 64 << 10
	importBytes = 64 << 10
)

func newWitness(t *testing.T, env *testenv.Env) *witness {
	t.Helper()
	doc := openAPI(t, env)
	// Clients must accept members that a later host adds, so the document
	// leaves objects open; for this host's own answers they are closed.
	visit(doc, "", func(_ string, n node) {
		if _, given := n["additionalProperties"]; n["type"] == "object" && n["properties"] != nil && !given {
			n["additionalProperties"] = false
		}
	})
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(documentURL, doc); err != nil {
		t.Fatal(err)
	}
	return &witness{t: t, env: env, doc: doc, schemas: c, seen: map[string]bool{}}
}

// request is one request; kind is its body's content type.
type request struct {
	key    string
	header http.Header
	kind   string
	body   string
}

func asJSON(key, body string) request {
	return request{key: key, kind: "application/json", body: body}
}

// send sends a request of an operation, such as "GET /version", whose answer
// must have the status, and be as the document says. It returns the answer.
func (w *witness) send(operation, path string, r request, status int) node {
	w.t.Helper()
	pointer, ok := operations(w.doc)[operation]
	if !ok {
		w.t.Fatalf("the document lacks %s", operation)
	}
	if r.kind == "application/json" && status/100 == 2 {
		w.valid(operation+", request", pointer+"/requestBody/content/application~1json/schema", []byte(r.body))
	}
	method, _, _ := strings.Cut(operation, " ")
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.env.Addr()+path, strings.NewReader(r.body))
	if err != nil {
		w.t.Fatal(err)
	}
	if r.header != nil {
		req.Header = r.header
	}
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	if r.key != "" {
		req.Header.Set("X-Api-Key", r.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // then it is a connection
		if body, err = io.ReadAll(resp.Body); err != nil {
			w.t.Fatal(err)
		}
	}
	if resp.StatusCode != status {
		w.t.Fatalf("%s answered %s, want %d: %s", operation, resp.Status, status, body)
	}
	w.answered(operation, pointer, resp, body)
	var out node
	if isJSON(resp) {
		if err := json.Unmarshal(body, &out); err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

func isJSON(resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind == "application/json" || kind == "application/problem+json"
}

// answered holds an answer against the document.
func (w *witness) answered(operation, pointer string, resp *http.Response, body []byte) {
	w.t.Helper()
	at0 := pointer + "/responses/" + strconv.Itoa(resp.StatusCode)
	described := at(w.doc, at0)
	if to, ok := described.(node)["$ref"].(string); ok {
		at0 = strings.TrimPrefix(to, "#")
		described = at(w.doc, at0)
	}
	if described == nil {
		w.t.Errorf("%s answered %s, which the document does not name: %s", operation, resp.Status, body)
		return
	}
	for name, h := range described.(node)["headers"].(node) {
		if resp.Header.Get(name) == "" && resolved(w.doc, h)["required"] == true {
			w.t.Errorf("%s, %s: the header %s is missing", operation, resp.Status, name)
		}
	}
	contents, _ := described.(node)["content"].(node)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if _, ok := contents[kind]; !ok && (len(contents) > 0 || len(body) > 0) {
		w.t.Errorf("%s, %s: content type %q, the document names %v", operation, resp.Status, kind, slices.Collect(maps.Keys(contents)))
		return
	}
	if isJSON(resp) {
		w.valid(operation+", "+resp.Status, at0+"/content/"+escaped(kind)+"/schema", body)
	}
	if resp.StatusCode < http.StatusBadRequest {
		w.seen[operation] = true
	}
}

// valid holds JSON against the schema at a pointer.
func (w *witness) valid(what, pointer string, body []byte) {
	w.t.Helper()
	schema, err := w.schemas.Compile(documentURL + "#" + pointer)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if err := schema.Validate(value); err != nil {
		w.t.Errorf("%s: %v\n%s", what, err, body)
	}
}

const (
	p1      = "/api/v1/plugins"
	pOne    = p1 + "/{plugin}"
	pMethod = pOne + "/services/{service}/{method}"
	pVer    = pOne + "/versions/{version}"
	mOne    = "/api/v1/memories/{key}"
	tenants = "/admin/v1/tenants"
)

const twoServices = `---
name: duo
version: 1.0.0
description: Two services.
defaultMemoryId: { from: "header:X-Conversation" }
services:
  - name: com.acme.Lasting
    description: It stays.
    scope: application
    methods:
      - { name: chat, memoryId: id, description: Talk, temperature: 0.5, window: { type: messages, max: 4 } }
  - name: com.acme.Fleeting
    scope: request
---
# com.acme.Lasting
You remember

# com.acme.Fleeting
You forget
`

func TestAnswersAreAsTheDocumentSays(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.ModuleBytes, cfg.Limits.ImportBytes = moduleBytes, importBytes
	env := testenv.New(t, cfg)
	w := newWitness(t, env)
	owner := administration(w)
	modules(w, owner)
	withCode(w, owner)
	calls(w, owner)
	sessions(w, owner)
	streams(w, owner)
	byHand(w, owner)
	quarantined(w, owner)
	endings(w, owner)
	for _, path := range []string{"/livez", "/readyz", "/version", "/api/v1/openapi.json"} {
		w.send("GET "+path, path, request{}, http.StatusOK)
	}
	for operation := range operations(w.doc) {
		if !w.seen[operation] {
			t.Errorf("%s was never seen to succeed", operation)
		}
	}
}

// administration makes a tenant and returns the key of its owner.
func administration(w *witness) string {
	keys := tenants + "/{tenant}/keys"
	w.send("POST "+tenants, tenants, asJSON(testenv.AdminKey, `{"name":"acme"}`), http.StatusCreated)
	w.send("POST "+tenants, tenants, asJSON(testenv.AdminKey, `{"name":"globex"}`), http.StatusCreated)
	w.send("POST "+tenants, tenants, asJSON(testenv.AdminKey, `{"name":"acme"}`), http.StatusBadRequest)
	w.send("POST "+tenants, tenants, asJSON("no-such-key", `{"name":"acme"}`), http.StatusUnauthorized)
	w.send("POST "+tenants, tenants, request{key: testenv.AdminKey, kind: "text/plain"}, http.StatusUnsupportedMediaType)
	w.send("GET "+tenants, tenants+"?limit=1", request{key: testenv.AdminKey}, http.StatusOK)
	made := w.send("POST "+keys, tenants+"/acme/keys", asJSON(testenv.AdminKey, `{"role":"owner","name":"ops"}`), http.StatusCreated)
	w.send("POST "+keys, tenants+"/acme/keys", asJSON(testenv.AdminKey, `{"role":"owner"}`), http.StatusForbidden)
	w.send("POST "+keys, tenants+"/nobody/keys", asJSON(testenv.AdminKey, `{"role":"owner"}`), http.StatusNotFound)
	const scrub = "/admin/v1/scrub"
	w.send("POST "+scrub, scrub, request{key: testenv.AdminKey}, http.StatusOK)
	w.send("POST "+scrub, scrub+"?now=1", request{key: testenv.AdminKey}, http.StatusBadRequest)
	w.send("POST "+scrub, scrub, request{key: made["secret"].(string)}, http.StatusUnauthorized)
	w.send("GET "+scrub, scrub, request{key: testenv.AdminKey}, http.StatusOK)
	return made["secret"].(string)
}

// modules uploads two versions and reads them.
func modules(w *witness, key string) {
	wasm := request{key: key, kind: "application/wasm", body: string(testenv.Pack(w.t, twoServices))}
	w.send("POST "+p1, p1+"?dryRun=true", wasm, http.StatusOK)
	w.send("POST "+p1, p1, wasm, http.StatusCreated)
	w.send("POST "+p1, p1, wasm, http.StatusOK)
	w.send("POST "+p1, p1, inParts(w.t, key), http.StatusCreated)
	w.send("POST "+p1, p1, request{key: key, kind: "application/wasm", body: "not a module"}, http.StatusUnprocessableEntity)
	w.send("POST "+p1, p1+"?colour=red", wasm, http.StatusBadRequest)
	admissions(w, wasm)
	w.send("POST "+p1, p1, request{kind: "application/wasm", body: wasm.body}, http.StatusUnauthorized)
	w.send("POST "+p1, p1, request{key: key, kind: "application/wasm", body: string(make([]byte, moduleBytes+1))}, http.StatusRequestEntityTooLarge)

	with := request{key: key}
	w.send("GET "+p1, p1+"?limit=1", with, http.StatusOK)
	w.send("GET "+pOne, p1+"/duo", with, http.StatusOK)
	w.send("GET "+pOne, p1+"/solo", with, http.StatusNotFound)
	w.send("GET "+pOne+"/versions", p1+"/duo/versions?limit=1", with, http.StatusOK)
	w.send("GET "+pVer, p1+"/duo/versions/1", with, http.StatusOK)
	for _, part := range []string{"/manifest", "/report", "/module"} {
		w.send("GET "+pVer+part, p1+"/duo/versions/2"+part, with, http.StatusOK)
		w.send("GET "+pVer+part, p1+"/duo/versions/7"+part, with, http.StatusNotFound)
	}
	w.send("PUT "+pOne+"/active", p1+"/duo/active", asJSON(key, `{"version":"1"}`), http.StatusOK)
	w.send("PUT "+pOne+"/active", p1+"/duo/active", asJSON(key, `{"version":"1","force":true}`), http.StatusBadRequest)
	w.send("POST "+pOne+"/rollback", p1+"/duo/rollback", with, http.StatusOK)
	w.send("POST "+pOne+"/rollback", p1+"/duo/rollback", with, http.StatusOK)
}

// admissions uploads without waiting, and sees what became of it.
func admissions(w *witness, wasm request) {
	later := request{key: wasm.key, kind: wasm.kind, header: http.Header{"Prefer": {"respond-async"}}}
	with, path := request{key: wasm.key}, "/api/v1/versions/"
	refused := "no module either"
	for _, body := range []string{wasm.body, refused} {
		later.body = body
		digest := w.send("POST "+p1, p1, later, http.StatusAccepted)["digest"].(string)
		for {
			state := w.send("GET "+path+"{digest}", path+digest, with, http.StatusOK)["state"]
			if state == "active" || state == "refused" {
				break
			}
		}
	}
	w.send("GET "+path+"{digest}", path+"1", with, http.StatusBadRequest)
	w.send("GET "+path+"{digest}", path+strings.Repeat("a", 64), with, http.StatusNotFound)
}

// inParts is an upload of a module and its manifest as two parts of a form.
func inParts(t *testing.T, key string) request {
	t.Helper()
	const manifest = `{"abi":"carrel/v1","name":"duo","version":"2.0.0","capabilities":{"models":["default"]},` +
		`"services":[{"name":"com.acme.Lasting","scope":"request","systemMessage":"You are new",` +
		`"methods":[{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}}]}]}`
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for name, content := range map[string]string{"module": "\x00asm\x01\x00\x00\x00", "manifest": manifest} {
		part, err := form.CreateFormFile(name, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return request{key: key, kind: form.FormDataContentType(), body: b.String()}
}

// calls uses the methods of the first version.
func calls(w *witness, key string) {
	const lasting, fleeting = p1 + "/duo/services/com.acme.Lasting/chat", p1 + "/duo/services/com.acme.Fleeting/chat"
	w.send("GET "+pMethod, lasting, request{key: key}, http.StatusOK)
	w.send("GET "+pMethod, fleeting, request{key: key}, http.StatusOK)
	w.send("POST "+pMethod, lasting, asJSON(key, `{"id":"1","msg":"one"}`), http.StatusOK)
	w.send("POST "+pMethod, lasting, asJSON(key, `{"id":"2","msg":"two"}`), http.StatusOK)
	w.send("POST "+pMethod, fleeting, asJSON(key, `{"msg":"three"}`), http.StatusOK)
	w.send("POST "+pMethod, lasting, asJSON(key, `{"id":"1","msg":3}`), http.StatusUnprocessableEntity)
	w.send("POST "+pMethod, lasting, asJSON(key, `{"id":`), http.StatusBadRequest)
	w.send("POST "+pMethod, lasting+"s", asJSON(key, `{}`), http.StatusNotFound)

	w.env.Model.FailNext(http.StatusBadRequest, `{"error":{"message":"no"}}`)
	w.send("POST "+pMethod, lasting, asJSON(key, `{"id":"1","msg":"four"}`), http.StatusBadGateway)
	release := w.env.Model.Hold()
	defer release()
	quick := asJSON(key, `{"id":"1","msg":"five"}`)
	quick.header = http.Header{"Carrel-Timeout": {"500ms"}}
	w.send("POST "+pMethod, lasting, quick, http.StatusGatewayTimeout)
	busy(w, lasting, key)
}

// busy sends a call that does not wait, to a memory id that another one uses.
func busy(w *witness, path, key string) {
	release := w.env.Model.Hold()
	defer release()
	running := len(w.env.Model.Calls()) + 1
	ended := make(chan error, 1)
	go func() {
		_, err := w.env.Anyone(key).Call(w.t.Context(), "duo/com.acme.Lasting.chat", "id", "1", "msg", "six")
		ended <- err
	}()
	if err := w.env.Model.Arrived(w.t.Context(), running); err != nil {
		w.t.Fatal(err)
	}
	hasty := asJSON(key, `{"id":"1","msg":"seven"}`)
	hasty.header = http.Header{"Carrel-On-Conflict": {"reject"}}
	w.send("POST "+pMethod, path, hasty, http.StatusConflict)
	release()
	if err := <-ended; err != nil {
		w.t.Fatal(err)
	}
}

// endings reads the histories and ends them and their plugin.
func endings(w *witness, key string) {
	with := request{key: key}
	page := w.send("GET /api/v1/memories", "/api/v1/memories?plugin=duo&limit=1", with, http.StatusOK)
	handle := page["data"].([]any)[0].(node)["key"].(string)
	w.send("GET /api/v1/memories", "/api/v1/memories?after="+page["next"].(string), with, http.StatusOK)
	w.send("GET /api/v1/memories", "/api/v1/memories?limit=0", with, http.StatusBadRequest)
	w.send("GET "+mOne+"/messages", "/api/v1/memories/"+handle+"/messages?limit=2", with, http.StatusOK)
	w.send("DELETE "+mOne, "/api/v1/memories/"+handle, with, http.StatusOK)
	w.send("GET "+mOne+"/messages", "/api/v1/memories/"+handle+"/messages", with, http.StatusNotFound)

	w.send("DELETE "+pOne+"/active", p1+"/duo/active", with, http.StatusOK)
	w.send("GET "+p1, p1, with, http.StatusOK) // active is null
	w.send("DELETE "+pVer, p1+"/duo/versions/1", with, http.StatusNoContent)
	w.send("DELETE "+pOne, p1+"/duo", with, http.StatusOK)
	w.send("DELETE "+pOne, p1+"/duo", with, http.StatusNotFound)
}
