"""The program that `pulumi package add` starts: see PulumiPlugin.yaml."""

from divvy.components.provider import main

main()
