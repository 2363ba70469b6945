module gpus

go 1.26.0

require (
	example.com/pulumi-divvy/sdk/go v0.0.0-00010101000000-000000000000
	github.com/pulumi/pulumi/sdk/v3 v3.274.1
)

replace example.com/pulumi-divvy/sdk/go => ./sdks/divvy
