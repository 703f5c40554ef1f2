package schema

// Limits of names and sizes. They are checked when a message is enqueued, inside the caller's transaction, so that
// nothing that was accepted can later be unsendable. The same limits hold on every database.
const (
	MaxTarget        = 63    // characters of a target's or handler's name
	MaxName          = 200   // bytes of an action or event name
	MaxID            = 64    // characters of a message id
	MaxKeyChars      = 200   // characters of an idempotency or ordering key
	MaxKeyBytes      = 800   // bytes of an idempotency or ordering key
	MaxContext       = 200   // bytes of tenant, actor and request id each
	MaxMetadata      = 64    // entries of metadata
	MaxMetadataKey   = 128   // bytes of a metadata key
	MaxHeaderBytes   = 32768 // bytes of the whole header block on the wire
	MaxSubject       = 255   // bytes of a whole subject, prefix included; a replay's may have 304
	MaxPrefix        = 32    // characters of a subject prefix
	MaxReason        = 2000  // characters of a stored error text
	MaxContentType   = 128   // bytes of a content type
	MaxTraceState    = 512   // bytes of a tracestate, the W3C minimum that must be propagated
	MaxBatchRows     = 999   // rows of one atomic batch; the server takes 1,000 messages and the cursor is one
	MaxBatchBytes    = 4 << 20
	headerReserve    = 1024          // what a forwarder adds to the header block, and as much for what a replay adds
	viaReserve       = 1536          // what bridges that pass a message on add: MaxVia names, and to key and target
	serverMaxHeader  = 1<<16 - 1     // nats-server's limit
	ServerMaxPayload = 1 << 20       // nats-server's default max_payload, headers included
	DefaultPayload   = 1<<20 - 1<<16 // payload limit unless the database says otherwise
	MaxReplay        = 1<<31 - 1     // number of a replay, which databases keep in four bytes
)
