package schema

import "context"

type optionsKey struct{}

// ContextWithOptions returns a context that carries options for messages published through Watermill's
// message.Publisher, which has no other place for an ordering key or a tenant: set it as the message's context. The
// options come after those that ctx carries already.
func ContextWithOptions(ctx context.Context, opts ...Option) context.Context {
	had := OptionsFrom(ctx)
	return context.WithValue(ctx, optionsKey{}, append(had[:len(had):len(had)], opts...))
}

// OptionsFrom returns the options that ctx carries.
func OptionsFrom(ctx context.Context) []Option {
	opts, _ := ctx.Value(optionsKey{}).([]Option)
	return opts
}
