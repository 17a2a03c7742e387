package host

import (
	"fmt"
	"strings"

	"github.com/carrelhost/carrel/host/model"
	"github.com/carrelhost/carrel/host/model/offline"
	"github.com/carrelhost/carrel/host/model/openai"
)

// Models that ChooseModel picks where the environment names none.
const (
	openAIModel = "gpt-4.1-mini"
	ollamaModel = "llama3.2"
	openAIBase  = "https://api.openai.com/v1"
)

// ChooseModel fills in the alias "default" where no model is configured, from
// the environment that other tools use too, and says in a sentence what it
// chose and why. OpenAI comes first (OPENAI_API_KEY, OPENAI_BASE_URL,
// OPENAI_MODEL), then Ollama (OLLAMA_HOST, OLLAMA_MODEL), then the built-in
// offline model.
func (c *Config) ChooseModel(getenv func(string) string) string {
	if len(c.Models) > 0 {
		d := c.Models["default"]
		return strings.TrimSpace(fmt.Sprintf("configured: %s %s", d.Provider, d.Model))
	}
	or := func(name, otherwise string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return otherwise
	}
	providers := map[string]Provider{}
	for name, p := range c.Providers { // the configuration's own map stays as it is
		providers[name] = p
	}
	c.Providers = providers
	switch {
	case getenv("OPENAI_API_KEY") != "":
		name := or("OPENAI_MODEL", openAIModel)
		base := or("OPENAI_BASE_URL", openAIBase)
		c.Providers["openai-env"] = Provider{Type: TypeOpenAI, BaseURL: base, APIKey: getenv("OPENAI_API_KEY")}
		c.Models = map[string]Model{"default": {Provider: "openai-env", Model: name}}
		return fmt.Sprintf("%s at %s, because OPENAI_API_KEY is set (OPENAI_MODEL picks another)", name, base)
	case getenv("OLLAMA_HOST") != "":
		name := or("OLLAMA_MODEL", ollamaModel)
		base := ollamaBase(getenv("OLLAMA_HOST"))
		c.Providers["ollama-env"] = Provider{Type: TypeOpenAI, BaseURL: base}
		c.Models = map[string]Model{"default": {Provider: "ollama-env", Model: name}}
		return fmt.Sprintf("%s at %s, because OLLAMA_HOST is set (OLLAMA_MODEL picks another)", name, base)
	default:
		c.Models = map[string]Model{"default": {Provider: ProviderOffline}}
		return "the built-in offline model, because no model is configured (set OPENAI_API_KEY or OLLAMA_HOST, or write `models`)"
	}
}

// ollamaBase turns what OLLAMA_HOST may hold, such as 0.0.0.0:11434, into the
// base URL of its OpenAI-compatible interface.
func ollamaBase(host string) string {
	if !strings.Contains(host, "://") {
		host = "http://" + host
	}
	scheme, rest, _ := strings.Cut(strings.TrimSuffix(host, "/"), "://")
	if scheme == "http" && !strings.Contains(rest, ":") {
		rest += ":11434"
	}
	rest = strings.Replace(rest, "0.0.0.0", "127.0.0.1", 1)
	return scheme + "://" + rest + "/v1"
}

// openModels is the complete list of what this build can talk to. The host
// closes the providers that it remembers in h.closers.
func (h *Host) openModels() error {
	providers := map[string]model.Provider{ProviderOffline: offline.New()}
	for name, p := range h.cfg.Providers {
		made, err := openai.New(openai.Config{
			BaseURL: p.BaseURL, APIKey: p.APIKey, MaxAnswerBytes: h.cfg.Limits.AnswerBytes,
			HeaderTimeout: h.cfg.Limits.Timeout,
		})
		if err != nil {
			return fmt.Errorf("providers.%s: %w", name, err)
		}
		h.closers = append(h.closers, made)
		providers[name] = made
	}
	h.models = model.Set{}
	for alias, m := range h.cfg.Models {
		h.models[alias] = model.Target{Provider: providers[m.Provider], Model: m.Model, Timeout: m.Timeout}
	}
	return nil
}
