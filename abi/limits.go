package abi

// Bounds that are part of the contract. A host may be stricter, never laxer;
// what exceeds one is refused with the limit's name in the error.
const (
	MaxManifestBytes      = 256 << 10 // the manifest section
	MaxNameBytes          = 63        // plugin and method names
	MaxServiceNameBytes   = 200
	MaxVersionBytes       = 64 // the free-text version of a manifest
	MaxDescriptionBytes   = 4 << 10
	MaxTemplateBytes      = 64 << 10 // system and user message templates
	MaxSchemaBytes        = 64 << 10 // params and output
	MaxMemoryIDBytes      = 256      // explicit memory ids
	MaxDefaultIDBytes     = 128      // what a default id provider may yield
	MaxServices           = 100      // in one manifest
	MaxMethods            = 100      // in one service
	MaxModels             = 32       // in capabilities.models
	MaxStopSequences      = 16
	MaxStopBytes          = 256
	MaxWindowMessages     = 1000
	DefaultWindowMessages = 20
	MaxWindowTokens       = 2_000_000
	MaxSeedTurns          = 64       // of one method
	MaxSeedBytes          = 64 << 10 // of all seed turns of one method
	MaxExportBytes        = 200
	MaxWarmupBytes        = 64 << 10 // the params of the warm-up, without white space
	MaxCallPatterns       = 64       // in capabilities.call
	DefaultMemoryMiB      = 32
	MaxMemoryMiB          = 64
	DefaultTimeout        = "30s"    // of one handler call
	MaxCallDepth          = 8        // of invocations inside one request
	MaxOpBytes            = 64       // of an operation's or feature's name
	MaxRequestBytes       = 1 << 20  // the request of one host call
	MaxRandomBytes        = 64 << 10 // of one `random`
	MaxGuestErrorBytes    = 32 << 10 // the JSON of one `error_set`, escapes included
	MaxGuestMessageBytes  = 4 << 10  // the message in it
	MaxGuestCodeBytes     = 64       // the code in it
	// DefaultProviderPriority is that of a plugin's own default id provider.
	// The session's is 0 and the request's 100; lower numbers are asked first.
	DefaultProviderPriority = -10
)
