package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/host/model"
)

// answer is a whole answer, or one event of a streamed one. It has only the
// fields that matter here, so that a server's own additions cannot break it.
type answer struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Message      said   `json:"message"` // of a whole answer
	Delta        said   `json:"delta"`   // of an event
	FinishReason string `json:"finish_reason"`
}

type said struct {
	Content content `json:"content"`
}

// content is a text, null, or a list of parts of which only texts count.
type content string

// UnmarshalJSON accepts the three forms.
func (c *content) UnmarshalJSON(data []byte) error {
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, (*string)(c)) // null leaves it empty
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	*c = content(b.String())
	return nil
}

// usage has float fields because some servers compute their counts.
type usage struct {
	PromptTokens     float64 `json:"prompt_tokens"`
	CompletionTokens float64 `json:"completion_tokens"`
}

// tokens is the provider's count; no usage counts as zero.
func (u *usage) tokens() carrel.Usage {
	if u == nil {
		return carrel.Usage{}
	}
	const most = 1 << 53
	return carrel.Usage{
		InputTokens:  int64(min(max(u.PromptTokens, 0), most)),
		OutputTokens: int64(min(max(u.CompletionTokens, 0), most)),
	}
}

// finish maps the reasons of OpenAI, and those of servers that name them
// after their engine's.
func finish(reason string) model.FinishReason {
	switch reason {
	case "stop", "eos", "eos_token", "stop_sequence":
		return model.FinishStop
	case "length":
		return model.FinishLength
	case "content_filter":
		return model.FinishFilter
	default:
		return model.FinishUnknown
	}
}

// decode reads a whole answer or an event, and tells one that reports an
// error or cannot be understood.
func decode(data []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, misunderstood(err)
	}
	switch string(bytes.TrimSpace(a.Error)) {
	case "", "null", "false", `""`, "{}":
		return a, nil
	default:
		return a, reported(a.Error)
	}
}

// readWhole reads an answer that is not streamed.
func (p *Provider) readWhole(body io.Reader) (model.Response, error) {
	data, err := io.ReadAll(io.LimitReader(body, p.maxAnswer+1))
	if err != nil {
		return model.Response{}, err
	}
	if int64(len(data)) > p.maxAnswer {
		return model.Response{}, p.tooLarge()
	}
	a, err := decode(data)
	if err != nil {
		return model.Response{}, err
	}
	if len(a.Choices) == 0 {
		return model.Response{}, misunderstood(errNoChoice)
	}
	return model.Response{
		Text:         string(a.Choices[0].Message.Content),
		FinishReason: finish(a.Choices[0].FinishReason),
		Model:        a.Model,
		Usage:        a.Usage.tokens(),
	}, nil
}

// deliverWhole is for servers that were asked for a stream and do not stream.
func (p *Provider) deliverWhole(body io.Reader, deliver func(string) error) (model.Response, error) {
	resp, err := p.readWhole(body)
	if err != nil || resp.Text == "" {
		return resp, err
	}
	return resp, deliver(resp.Text)
}
