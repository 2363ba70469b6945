module gpus

go 1.26.0

require (
	example.com/pulumi-divvy/sdk/go/divvy v0.0.0
	github.com/pulumi/pulumi/sdk/v3 v3.274.1
)

replace example.com/pulumi-divvy/sdk/go/divvy => ./sdks/divvy
