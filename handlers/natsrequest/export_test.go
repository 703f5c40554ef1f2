package natsrequest

// What the fuzz targets try.
var (
	Refused = refused
	Answer  = answer
)
