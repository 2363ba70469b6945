// Two pools, in Go.
package main

import (
	"strings"

	"example.com/pulumi-divvy/sdk/go/divvy"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		image := "registry.example/divvy/agent@sha256:" + strings.Repeat("0", 64)
		gpus, err := divvy.NewGpuCluster(ctx, "prod", &divvy.GpuClusterArgs{
			Cluster: divvy.ClusterArgs{
				Profiles: pulumi.Map{
					"quarters": divvy.RuleArgs{
						TimeSlicing: divvy.TimeSlicingArgs{
							Replicas: pulumi.Int(4),
							MemoryLimit: divvy.MemoryLimitArgs{
								Limit:  pulumi.String("auto"),
								Action: divvy.MemoryLimitActionPrevent,
							},
						},
					},
					"mixed": divvy.RuleArray{
						divvy.RuleArgs{
							Devices: pulumi.IntArray{pulumi.Int(0)},
							Mig: pulumi.IntMap{
								"3g.20gb": pulumi.Int(1),
								"2g.10gb": pulumi.Int(2),
							},
						},
						divvy.RuleArgs{},
					},
				},
				Pools: divvy.PoolMap{
					"notebooks": divvy.PoolArgs{
						Select: pulumi.StringMap{"pool": pulumi.String("notebooks")},
						Hardware: divvy.HardwareArgs{
							Model: pulumi.String("T4"),
							Gpus:  pulumi.Int(2),
							Count: pulumi.Int(3),
						},
						Profile: pulumi.String("quarters"),
					},
					"training": divvy.PoolArgs{
						Select: pulumi.StringMap{"pool": pulumi.String("training")},
						Hardware: divvy.HardwareArgs{
							Model: pulumi.String("A100-SXM4-40GB"),
							Gpus:  pulumi.Int(4),
							Count: pulumi.Int(2),
						},
						Profile: pulumi.String("mixed"),
					},
				},
				Plugin: divvy.PluginArgs{
					Image: divvy.PluginImageArgs{Reference: pulumi.String(image)},
				},
			},
		})
		if err != nil {
			return err
		}
		ctx.Export("advertised", gpus.Advertised)
		return nil
	})
}
