// Package nvfm stands in for NVIDIA's bindings of the fabric manager, which no Go proxy serves.
//
// It has what the DRA driver names of them, and answers that there is no fabric manager: the
// driver asks only with its feature gate FabricManagerPartitioning.
package nvfm

import "fmt"

// Return is the code of a call.
type Return int

const (
	SUCCESS      Return = 0
	notAvailable Return = -1
)

func (r Return) String() string {
	return fmt.Sprintf("no fabric manager: this build has a stand-in for its bindings (%d)", int(r))
}

// Options of New and Connect, of which the stand-in needs none.
type (
	LibraryOption struct{}
	ConnectOption struct{}
)

func New(...LibraryOption) Interface              { return absent{} }
func WithLibraryPath(string) (none LibraryOption) { return }
func WithUnixSocket(string) (none ConnectOption)  { return }
func WithAddress(string) (none ConnectOption)     { return }
func WithTimeoutMs(uint32) (none ConnectOption)   { return }

// Interface is the library, Handle a connection to the fabric manager.
type (
	Interface interface {
		Init() Return
		Shutdown() Return
		Connect(...ConnectOption) (Handle, Return)
	}
	Handle interface {
		Disconnect() Return
		GetSupportedFabricPartitions() (FabricPartitionList, Return)
		ActivateFabricPartition(FabricPartitionId) Return
		DeactivateFabricPartition(FabricPartitionId) Return
	}
)

// What a fabric manager lists: partitions, and the GPUs of each.
type (
	FabricPartitionId   uint32
	FabricPartitionList struct {
		NumPartitions uint32
		PartitionInfo [1]FabricPartition
	}
	FabricPartition struct {
		PartitionId       FabricPartitionId
		IsActive, NumGpus uint32
		GpuInfo           [1]GPU
	}
	GPU struct {
		PhysicalId, NumNvLinksAvailable, MaxNumNvLinks, NvlinkLineRateMBps uint32
		Uuid, PciBusId                                                     [1]int8
	}
)

type absent struct{}

func (absent) Init() Return                              { return notAvailable }
func (absent) Shutdown() Return                          { return SUCCESS }
func (absent) Connect(...ConnectOption) (Handle, Return) { return nil, notAvailable }
