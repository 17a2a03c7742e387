package plugins_test

const smallest = `{"abi":"carrel/v1","name":"a","version":"1"}`

// withMethod is a manifest of one method chat with more members.
func withMethod(members string) string {
	return withService(`"methods":[{"name":"chat","kind":"chat"` + members + `}]`)
}

func withService(members string) string {
	return `{"abi":"carrel/v1","name":"a","version":"1","services":[{"name":"com.acme.MyChat",` + members + `}]}`
}

func withPlugin(members string) string {
	return `{"abi":"carrel/v1","name":"a","version":"1",` + members + `}`
}

const msgParams = `,"params":{"type":"object","properties":{"msg":{"type":"string"},"n":{"type":"integer"}},"required":["msg"]}`

// withHandler is a manifest of one handler with more members.
func withHandler(members string) string {
	return withService(`"methods":[{"name":"triage","kind":"handler",` + members + `}]`)
}
