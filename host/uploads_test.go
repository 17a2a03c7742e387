package host_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/internal/testenv"
)

// section is one section of a module, whatever is in it.
func section(id byte, content string) string {
	return string(binary.AppendUvarint([]byte{id}, uint64(len(content)))) + content
}

const header = "\x00asm\x01\x00\x00\x00"

// bomb is a module whose section of that id says that it has four billion
// elements.
func bomb(id byte) string { return header + section(id, "\xff\xff\xff\xff\x0f") }

// vec is a name as modules write it.
func vec(s string) string { return string(binary.AppendUvarint(nil, uint64(len(s)))) + s }

// manifest is a module with this manifest.
func manifest(json string) string { return string(module.Prompt([]byte(json))) }

func TestAModuleThatIsRefusedLeavesNothing(t *testing.T) {
	const function = "\x60\x00\x00"
	cases := map[string]refusal{
		"no bytes":                  {body: "", says: []string{"empty"}, status: 422, code: "invalid_module"},
		"the source of a plugin":    {body: "---\nname: x\n---\nhello", says: []string{"source of a prompt plugin"}, status: 422, code: "invalid_module"},
		"a manifest alone":          {body: `{"abi":"carrel/v1"}`, says: []string{"JSON"}, status: 422, code: "invalid_module"},
		"a native program":          {body: "\x7fELF\x02", says: []string{"native"}, status: 422, code: "invalid_module"},
		"a component":               {body: "\x00asm\x0d\x00\x01\x00", says: []string{"component"}, status: 422, code: "invalid_module"},
		"another version":           {body: "\x00asm\x02\x00\x00\x00", says: []string{"version 2"}, status: 422, code: "invalid_module"},
		"no manifest":               {body: header, says: []string{"carrel.manifest"}, status: 422, code: "invalid_module"},
		"two manifests":             {body: manifest("{}") + section(0, vec("carrel.manifest")+"{}"), says: []string{"second"}, status: 422, code: "invalid_module"},
		"a section id that is none": {body: header + section(77, ""), status: 422, code: "invalid_module"},
		"a section beyond the end":  {body: header + "\x01\xff\xff\xff\xff\x07", says: []string{"cut off"}, status: 422, code: "invalid_module"},
		"a size without end":        {body: header + "\x01\xff\xff\xff\xff\xff\xff\xff", status: 422, code: "invalid_module"},
		"code that says nothing of itself": {
			body: header + section(1, "\x01"+function) + section(3, "\x01\x00") + section(10, "\x01\x02\x00\x0b") +
				section(0, vec("carrel.manifest")+"{}"),
			status: 422, code: "invalid_manifest", pointers: []string{"/abi", "/name", "/version"},
		},
		"imports that no host has": {
			body: header + section(1, "\x01"+function) + section(2, "\x03"+
				vec("env")+vec("launch")+"\x00\x00"+vec("carrel:v1")+vec("nothing")+"\x00\x00"+vec("gpu")+vec("mem")+"\x02\x00\x01"),
			says: []string{`"env" "launch"`, `"carrel:v1" "nothing"`, `"gpu" "mem"`}, status: 422, code: "unknown_import",
		},
		"65 custom sections": {
			body:   header + strings.Repeat(section(0, vec("x")), 65),
			limit:  "module.customSections",
			status: 422, code: "limit_exceeded",
		},
		"a manifest of half a megabyte": {
			body:  manifest(`{"abi":"` + strings.Repeat("x", 512<<10) + `"}`),
			limit: "manifestBytes", status: 422, code: "limit_exceeded",
		},
		"a manifest that is no JSON":     {body: manifest("name: x"), status: 422, code: "invalid_manifest"},
		"a manifest with a member twice": {body: manifest(`{"abi":"carrel/v1","abi":"carrel/v1"}`), status: 422, code: "invalid_manifest", pointers: []string{"/abi"}},
		"a manifest of deep schemas":     {body: manifest(`{"services":` + strings.Repeat("[", 100_000)), status: 422, code: "invalid_manifest"},
		"a manifest with many faults": {
			body: manifest(`{
				"abi": "carrel/v2", "name": "No Name", "Version": "1",
				"services": [{"name": "1x", "scope": "forever", "methods": [
					{"name": "a b", "kind": "talk", "model": "gpt-unknown", "memoryId": "id",
					 "params": {"type": "object", "properties": {"msg": {"type": "string"}}, "required": ["msg"]},
					 "systemMessage": "hi {{who}}", "temperature": 3, "window": {"type": "tokens"}, "tools": []}]}],
				"defaultMemoryId": {"from": "cookie:x", "priority": 0}}`),
			status: 422, code: "invalid_manifest",
			pointers: []string{
				"/abi", "/name", "/Version", "/services/0/name", "/services/0/scope", "/services/0/methods/0/name",
				"/services/0/methods/0/kind", "/services/0/methods/0/model", "/services/0/methods/0/memoryId",
				"/services/0/methods/0/systemMessage", "/services/0/methods/0/temperature", "/services/0/methods/0/window/max",
				"/services/0/methods/0/tools", "/defaultMemoryId/from", "/defaultMemoryId/priority", "/version",
			},
		},
		"a leak": {body: string(testenv.Pack(t, testenv.Example(t, "leak"))), status: 422, code: "default_id_leak", says: []string{"allowDefaultIdLeak", "defaultMemoryId", "required"}, pointers: []string{"/services/0/methods/0"}},
	}
	for id, limit := range map[byte]string{
		1: "module.types", 2: "module.imports", 3: "module.functions", 4: "module.tables", 5: "module.memories", 6: "module.globals",
		7: "module.exports", 9: "module.elements", 10: "module.functions", 11: "module.dataSegments",
	} {
		cases["four billion of "+limit+fmt.Sprint(" in section ", id)] = refusal{body: bomb(id), limit: limit, status: 422, code: "limit_exceeded"}
	}
	whole := testenv.Pack(t, bot("bot", "one"))
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				c.path, c.header = "/api/v1/plugins", [2]string{"Content-Type", "application/wasm"}
				c.refuse(t, acme)
				c.path += "?dryRun=true"
				c.refuse(t, acme)
				if left := acme.Plugins(); len(left) > 0 {
					t.Errorf("there is %+v", left)
				}
			})
		}
		for n := range whole {
			acme.WantCode(abi.InvalidModule).Upload(whole[:n])
		}
		if left := acme.Plugins(); len(left)+len(env.Model.Calls()) > 0 {
			t.Errorf("there is %+v", left)
		}
		acme.Upload(whole)
		before := snapshot(acme)
		acme.WantCode(abi.InvalidModule).Upload(whole[:len(whole)-1])
		acme.Chat("bot/com.acme.MyChat.chat", "id", "1", "msg", "hello")
		acme.End("bot", "1")
		if after := snapshot(acme); after != before {
			t.Errorf("a refused upload made %s\nof %s", after, before)
		}
	})
}

func TestAnUploadOverTheLimitIsRefused(t *testing.T) {
	cfg := testenv.Config()
	cfg.Limits.ModuleBytes = 1000
	env := testenv.New(t, cfg)
	acme := env.Tenant("acme")
	refusal{
		path: "/api/v1/plugins", header: [2]string{"Content-Type", "application/wasm"}, body: strings.Repeat("x", 1001),
		status: 413, code: "too_large", limit: "moduleBytes", says: []string{"1000"},
	}.refuse(t, acme)
	refusal{
		path: "/api/v1/plugins", header: [2]string{"Content-Type", "application/octet-stream"}, body: "\x00asm",
		status: 415, code: "unsupported_media_type", says: []string{"application/wasm"},
	}.refuse(t, acme)
}

// form is a multipart body of parts given as name, content and so on.
func form(t *testing.T, parts ...string) (kind, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		p, err := w.CreateFormFile(parts[i], parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write([]byte(parts[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

func TestAManifestThatComesApartIsTheSameVersionAsOneInside(t *testing.T) {
	testenv.EachStore(t, func(t *testing.T, cfg host.Config) {
		env := testenv.New(t, cfg)
		acme := env.Tenant("acme")
		inside := testenv.Pack(t, bot("bot", "one"))
		m, err := module.Read(inside, module.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		json, _ := m.Custom(abi.ManifestSection)
		up := func(status int, parts ...string) testenv.Answer {
			kind, body := form(t, parts...)
			ans := acme.With("Content-Type", kind).Do(http.MethodPost, "/api/v1/plugins", body)
			if ans.Status != status {
				t.Errorf("the answer is %d %s, want %d", ans.Status, ans.Body, status)
			}
			return ans
		}
		up(http.StatusCreated, "module", header, "manifest", string(json))
		up(http.StatusOK, "manifest", string(json), "module", header)
		up(http.StatusOK, "module", string(inside))
		if again := acme.Upload(inside); again.Version.N != 1 || len(acme.Versions("bot")) != 1 {
			t.Errorf("the module with its manifest inside is version %d", again.Version.N)
		}
		for what, parts := range map[string][]string{
			"a module with a manifest, and another": {"module", string(inside), "manifest", string(json)},
			"a manifest that is wrong":              {"module", header, "manifest", "{}"},
			"a module that is wrong":                {"module", "wasm", "manifest", string(json)},
		} {
			if p := up(http.StatusUnprocessableEntity, parts...).Problem(t); !strings.HasPrefix(p.Code, "invalid_") {
				t.Errorf("%s: %s", what, p.Code)
			}
		}
		for _, parts := range [][]string{
			{"manifest", string(json)},
			{"module", header, "module", header},
			{"module", header, "manifest", string(json), "extra", "x"},
		} {
			up(http.StatusBadRequest, parts...).Problem(t)
		}
		refusal{
			path: "/api/v1/plugins", header: [2]string{"Content-Type", "multipart/form-data; boundary=x"}, body: "--x\r\nhalf",
			status: 400, code: "bad_request",
		}.refuse(t, acme)
		refusal{
			path: "/api/v1/plugins", header: [2]string{"Content-Type", "multipart/form-data"}, body: "--x\r\nhalf",
			status: 400, code: "bad_request",
		}.refuse(t, acme)
		if len(acme.Versions("bot")) != 1 || len(acme.Plugins()) != 1 {
			t.Error("a refused upload left something")
		}
	})
}
