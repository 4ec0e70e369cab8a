"""What programs print when they die, and what that means. Read by `reading`, one line at a time.

The texts are those of the programs' sources, or were printed by them: tests/causes/ has the recorded ones.
A pattern names what it is sure of and nothing else: an unknown cause stays unknown. That a failure may be the
sign of another's is an idea of NVIDIA's Resiliency Extension (PATTERN_REGISTRY.md).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """One class of causes. Groups with a name are numbers or names of modules, and may stand in `says`."""

    name: str  # one CamelCase word
    raised: re.Pattern[str]  # in the line of an exception
    printed: re.Pattern[str] | None  # in any other line; only what nothing prints that goes on
    says: str  # what happened, as a sentence without its end
    hint: str  # what to do, as a sentence
    is_retryable: bool | None  # None: it depends
    is_cascade: bool  # mostly the sign of another rank's failure


_SIZE = r"[\d.]+ ?[KMGT]?i?B(?:ytes)?"


def _pattern(
    name: str,
    raised: str,
    says: str,
    hint: str,
    *,
    printed: str = "",
    retryable: bool | None = None,
    cascade: bool = False,
) -> Pattern:
    also = re.compile(printed) if printed else None
    return Pattern(name, re.compile(raised), also, says, hint, retryable, cascade)


# The first that matches a line counts: what is special stands before what is general.
PATTERNS = (
    # Accelerators
    _pattern(
        "AcceleratorOutOfMemory",
        r"OutOfMemoryError: (?:CUDA|HIP|XPU|MPS)\D{0,40}out of memory\. Tried to allocate "
        rf"(?P<asked>{_SIZE})(?:.{{0,60}}total capacity of (?P<all>{_SIZE}))?",
        "the accelerator's memory was full: {asked} more were requested of {all}",
        "Use a smaller batch or shorter sequences, activation checkpointing, or shard the model.",
        retryable=False,
    ),
    _pattern(
        "AcceleratorOutOfMemory",
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory(?! allocating \d)|OOM|Ran out of memory)"
        r"|MPS backend out of memory|OOM when allocating tensor|cuda runtime error \(2\)",
        "the accelerator's memory was full",
        "Use a smaller batch or shorter sequences, activation checkpointing, or shard the model.",
        retryable=False,
    ),
    _pattern(
        "DeviceAssert",
        r"CUDA error: device-side assert triggered|device-side assertion",
        "a check in a kernel failed on the accelerator, mostly an index out of range",
        "Run with CUDA_LAUNCH_BLOCKING=1, or on CPU, to see which operation; check labels and token ids.",
        printed=r"\.cu:\d+: .{1,400} Assertion `.{1,400}` failed\.$",
        retryable=False,
    ),
    _pattern(
        "AcceleratorFault",
        r"uncorrectable ECC error|GPU has fallen off the bus|CUDA error: (?:uncorrectable|hardware"
        r"|the launch timed)"
        r"|CUDA error: an illegal instruction was encountered|CUDA error: unspecified launch failure"
        r"|GPU is lost|NVLink error",
        "the accelerator or its driver reported a fault",
        "Try another node, and have this one checked: dmesg, DCGM and nvidia-smi -q name the fault.",
        printed=r"NVRM: Xid \(|GPU has fallen off the bus|uncorrectable ECC error encountered",
        retryable=True,
    ),
    _pattern(
        "IllegalMemoryAccess",
        r"CUDA error: an illegal memory access was encountered|CUDA error: misaligned address",
        "a kernel read or wrote memory of the accelerator that is not its own",
        "Run with CUDA_LAUNCH_BLOCKING=1 to see which kernel; if only one node shows it, have that checked.",
    ),
    _pattern(
        "DriverMismatch",
        r"CUDA error: no kernel image is available for execution|forward compatibility was attempted on non"
        r"|driver version is insufficient|driver on your system is too old"
        r"|The NVIDIA driver on your system is too old"
        r"|Failed to initialize NVML: Driver/library version mismatch",
        "the program was built for another driver or accelerator than the node has",
        "Use an image for this driver and accelerator, or another node pool.",
        retryable=False,
    ),
    _pattern(
        "NoAccelerator",
        r"No CUDA GPUs are available|Found no NVIDIA driver on your system"
        r"|Torch not compiled with CUDA enabled|CUDA driver initialization failed"
        r"|CUDA error: no CUDA-capable device is detected|CUDA error: invalid device ordinal"
        r"|No visible GPU devices|No supported gpu backend found"
        r"|Unable to initialize backend '(?:cuda|tpu|rocm)'"
        r"|Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        "the program found no accelerator",
        "Check the resource limits of the pod, the image, and that the node has a driver.",
        retryable=False,
    ),
    # Loaders and memory of the host
    _pattern(
        "SharedMemoryFull",
        r"dataloader's workers are out of shared memory|DataLoader worker.{0,40}killed by signal: Bus error"
        r"|unable to (?:open|mmap|write to|allocate|resize) .{0,80}(?:shared memory|/torch_|/dev/shm)"
        r"|Insufficient shared memory|No space left on device: '/dev/shm"
        r"|\[Errno 28\] No space left on device: '/(?:dev/shm|torch_|psm_|sem\.)",
        "shared memory (/dev/shm) was full",
        "Mount an emptyDir with medium Memory at /dev/shm, or use fewer workers of the loader.",
        printed=r"This might be caused by insufficient shared memory|Fatal Python error: Bus error"
        r"|^Bus error\b"
        r"|exited on signal 7\b|Signal 7 \(SIGBUS\)",
        retryable=False,
    ),
    _pattern(
        "LoaderWorkerKilled",
        r"DataLoader worker \(pid[^)]{0,200}\) (?:exited unexpectedly|is killed by signal: (?:Killed"
        r"|Aborted|Terminated))"
        r"|A process in the process pool was terminated abruptly|BrokenProcessPool",
        "a worker process of a loader or a pool was killed, mostly for lack of memory",
        "Raise the pod's memory limit, or use fewer workers or less prefetching.",
    ),
    _pattern(
        "HostOutOfMemory",
        r"(?:can't allocate memory: you tried to allocate|RESOURCE_EXHAUSTED: Out of memory allocating)"
        r" (?P<asked>\d+) bytes",  # the latter by XLA, of a CPU
        "the pod's memory was not enough: {asked} bytes more were requested",
        "Raise the memory limit, or load less at once.",
        retryable=False,
    ),
    _pattern(
        "HostOutOfMemory",
        rf"Unable to allocate (?P<asked>{_SIZE}) for an array",
        "the pod's memory was not enough: {asked} more were requested",
        "Raise the memory limit, or load less at once.",
        retryable=False,
    ),
    _pattern(
        "HostOutOfMemory",
        r"^MemoryError\b|\[Errno 12\] Cannot allocate memory|std::bad_alloc",
        "the pod's memory was not enough",
        "Raise the memory limit, or load less at once.",
        printed=r"terminate called after throwing an instance of 'std::bad_alloc'",
        retryable=False,
    ),
    _pattern(
        "ThreadLimit",
        r"RuntimeError: can't start new thread|pthread_create failed|Resource temporarily unavailable: fork"
        r"|BlockingIOError: \[Errno 11\] Resource temporarily unavailable$",
        "no further thread or process could be started",
        "Raise the limit of processes of the pod or node, or use fewer workers and threads.",
    ),
    # Storage
    _pattern(
        "DiskFull",
        r"\[Errno 28\] No space left on device|No space left on device|\[Errno 122\] Disk quota exceeded",
        "a disk or volume was full",
        "Free space, use a larger volume, or keep fewer checkpoints.",
        retryable=False,
    ),
    _pattern(
        "CheckpointNotWritten",
        r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos"
        r"|basic_ios::clear: iostream error",
        "a checkpoint could not be written to its end, mostly because a disk or volume was full",
        "Free space, use a larger volume, or keep fewer checkpoints.",
        retryable=False,
    ),
    _pattern(
        "ReadOnlyStorage",
        r"\[Errno 30\] Read-only file system",
        "the program wrote to a file system that is read-only",
        "Write to a mounted volume.",
        retryable=False,
    ),
    _pattern(
        "StorageFault",
        r"\[Errno 116\] Stale file handle|\[Errno 5\] Input/output error"
        r"|\[Errno 110\] Connection timed out: '/"
        r"|Transport endpoint is not connected",
        "storage did not answer as it should",
        "Try again; if it comes back, check the volume and its network.",
        retryable=True,
    ),
    _pattern(
        "TooManyOpenFiles",
        r"\[Errno 24\] Too many open files",
        "too many files were open",
        "Raise the limit (ulimit -n), use fewer workers, or torch.multiprocessing's file_system strategy.",
        retryable=False,
    ),
    # Checkpoints
    _pattern(
        "CheckpointCorrupt",
        r"PytorchStreamReader failed (?:reading|locating|finding|in)|UnpicklingError: (?:invalid load key"
        r"|pickle data was truncated)"
        r"|SafetensorError: Error while deserializ|EOFError: Ran out of input"
        r"|file in archive is not in a subdirectory"
        r"|unexpected EOF, expected \d+ more bytes|BadZipFile",
        "a checkpoint or file cannot be read: it is cut off or damaged",
        "Resume from the checkpoint before it; write to a temporary name and rename.",
        retryable=False,
    ),
    _pattern(
        "CheckpointMismatch",
        r"Error\(s\) in loading state_dict for|size mismatch for [\w.]{1,200}: copying a param"
        r"|(?:Missing|Unexpected) key\(s\) in state_dict|loaded state dict (?:has a different number"
        r"|contains a parameter group)"
        r"|Missing key in checkpoint state_dict|Weights only load failed",
        "a checkpoint does not fit the model or the version that loads it",
        "Load it with the model and versions that wrote it, or begin without it.",
        retryable=False,
    ),
    # Numbers
    _pattern(
        "NotFinite",
        r"returned nan values in its \d+th output|[Ll]oss is (?:nan|NaN|inf)\b"
        r"|The loss returned in `training_step` is nan"
        r"|Current loss scale already at minimum|[Ii]nput (?:X |y )?contains (?:NaN|infinity)"
        r"|non-?finite (?:loss|grad)|FloatingPointError"
        r"|(?:FloatingPointError|RuntimeError|ValueError): .{0,60}\bnan\b|NaN(?:s)? (?:encountered"
        r"|detected|found) in",
        "a loss, gradient or input was not a finite number",
        "Lower the learning rate, clip gradients, check the data of the last steps.",
        retryable=False,
    ),
    # Network and hubs
    _pattern(
        "HubRefused",
        r"GatedRepoError|RepositoryNotFoundError|401 Client Error: Unauthorized|403 Client Error: Forbidden"
        r"|is not a local folder and is not a valid model identifier|You are trying to access a gated repo"
        r"|wandb.{0,40}(?:api_key not configured|No API key configured)|Invalid user token"
        r"|InvalidAccessKeyId|AccessDenied",
        "a hub or store refused the request",
        "Check the name, and that the pod has a token with the right to it.",
        retryable=False,
    ),
    _pattern(
        "NameNotFound",
        r"\[Errno -[235]\] (?:Name or service not known|Temporary failure in name resolution|No address)"
        r"|Temporary failure in name resolution|Name or service not known|getaddrinfo (?:failed|ENOTFOUND)",
        "a host's name was not found",
        "Check the name and the cluster's DNS; a peer's name is there once its pod and service are.",
        retryable=True,
    ),
    _pattern(
        "DownloadFailed",
        r"We couldn't connect to 'https?://|LocalEntryNotFoundError|Max retries exceeded with url"
        r"|OfflineModeIsEnabled|HfHubHTTPError: (?:429|5\d\d)|(?:429|5\d\d) (?:Client|Server) Error"
        r"|EndpointConnectionError|<urlopen error|^requests\.exceptions\.ConnectionError|(?:Read"
        r"|Connect)Timeout(?:Error)?: .{0,40}HTTPS?Connection",
        "a download or a request to a service failed",
        "Try again; check the network policy and the proxy, or put the data into the image or a volume.",
        retryable=True,
    ),
    # Ranks among themselves
    _pattern(
        "AddressInUse",
        r"EADDRINUSE|\[Errno 98\] Address already in use|errno: 98",
        "a port that the program listens on was taken",
        "Try again; with hostNetwork choose another port (MASTER_PORT).",
        retryable=True,
    ),
    _pattern(
        "RendezvousTimeout",
        r"The client socket has timed out after \d+ ?ms while trying to connect"
        r"|Timed out after \d+ seconds waiting for clients\. \d+/\d+ clients joined|RendezvousTimeoutError"
        r"|DistStoreError: Timed out|wait timeout after \d+ms, keys"
        r"|Barrier timed out\. .{0,80}tasks.{0,40}did not|failed to connect to all addresses",
        "not all ranks came together in time",
        "Look at the ranks that are missing: pending pods, another image, a wrong MASTER_ADDR or world size.",
        retryable=True,
        cascade=True,
    ),
    _pattern(
        "CollectiveTimeout",
        r"Watchdog caught collective operation timeout|[Cc]ollective operation timed? ?out"
        r"|Timed out waiting \d+ms for (?:recv|send) operation"
        r"|ncclSystemError: System call .{0,40}timed out"
        r"|Some NCCL operations have failed or timed out|Timeout waiting for key"
        r"|Heartbeat monitor timed out"
        r"|Horovod has timed out|Missed heartbeats from the following ranks",
        "a collective operation waited too long for another rank",
        "Look at the rank that did not take part: it failed, hangs, or runs other code.",
        printed=r"Watchdog caught collective operation timeout"
        r"|Some NCCL operations have failed or timed out",
        cascade=True,
    ),
    _pattern(
        "PeerLost",
        r"remote process exited or there was a network error|DistNetworkError|HorovodInternalError"
        r"|ncclRemoteError|recvValue failed|sendBytes failed|recvBytes failed|socketPollConnect.{0,60}failed"
        r"|Gloo connectFullMesh failed|The actor died unexpectedly|NodeDiedError"
        # The same words of other errors are of a service's connection.
        r"|^(?:[\w.]+\.)?(?:RuntimeError|Dist\w+Error|XlaRuntimeError|JaxRuntimeError): .*"
        r"(?:Connection (?:closed|reset) by peer|Broken pipe|Socket closed|Connection timed out"
        r"|Connect(?:ion)? (?:to .{0,60})?(?:refused|closed))",
        "the connection to another rank was lost",
        "Look at the rank that failed first, and at its node.",
        retryable=True,
        cascade=True,
    ),
    _pattern(
        "CommunicationFault",
        r"ncclUnhandledCudaError|ncclInternalError|ncclSystemError|ncclInvalidUsage|NCCL error in:"
        r"|Duplicate GPU detected",
        "the collective library failed",
        "Run with NCCL_DEBUG=INFO; check drivers, devices and network of the node.",
    ),
    # Programs
    _pattern(
        "ImportFailed",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]{1,80})'",
        "the module {module} is not installed",
        "Add it to the image, at the version that the program needs.",
        retryable=False,
    ),
    _pattern(
        "ImportFailed",
        r"ImportError: |undefined symbol: |version `(?:GLIBC|CXXABI|GLIBCXX)_[\d.]+' not found"
        r"|numpy\.dtype size changed|compiled using NumPy 1\.x cannot be run in"
        r"|cannot open shared object file|error while loading shared libraries",
        "a module or library cannot be loaded, mostly because versions do not fit",
        "Install versions that belong together.",
        printed=r"error while loading shared libraries|symbol lookup error: |version `(?:GLIBC|CXXABI"
        r"|GLIBCXX)_[\d.]+' not found",
        retryable=False,
    ),
    _pattern(
        "FileMissing",
        r"FileNotFoundError|NotADirectoryError|\[Errno 2\] No such file or directory",
        "a file or directory is not there",
        "Check paths, mounts and the working directory.",
        printed=r"can't open file '.{1,400}': \[Errno 2\]"
        r"|^/?[\w./-]{1,80}: (?:line )?\d*:? ?.{1,200}: (?:command )?not found$"
        r"|executable file not found in \$PATH",
        retryable=False,
    ),
    _pattern(
        "PermissionDenied",
        r"PermissionError|\[Errno 13\] Permission denied",
        "the program may not read or write a file",
        "Check owner and mode of the volume, fsGroup and runAsUser.",
        printed=r"can't open file '.{1,400}': \[Errno 13\]"
        r"|^/?[\w./-]{1,80}: (?:line )?\d*:? ?.{1,200}: Permission denied$",
        retryable=False,
    ),
    _pattern(
        "UsageError",
        r"No such option: -|Missing option '|ScannerError|unexpected key .{1,100} in config",
        "the program was called with wrong arguments",
        "Check the command and arguments of the job.",
        printed=r"^[\w./-]{1,120}: error: (?:the following arguments are required|unrecognized arguments"
        r"|argument [-\w/, ]{1,80}:|ambiguous option|one of the arguments)",
        retryable=False,
    ),
    _pattern(
        "SegmentationFault",
        r"Fatal Python error: Segmentation fault|SIGSEGV",
        "native code crashed (segmentation fault)",
        "Run with python -X faulthandler to see where; check versions of native libraries.",
        printed=r"Fatal Python error: Segmentation fault|^Segmentation fault\b|exited on signal 11\b"
        r"|Signal 11 \(SIGSEGV\)",
        retryable=False,
    ),
    _pattern(
        "Aborted",
        r"SIGABRT",
        "native code ended itself (abort)",
        "The lines before it say why; run with python -X faulthandler to see where.",
        printed=r"Fatal Python error: Aborted|^terminate called after throwing|exited on signal 6\b"
        r"|Signal 6 \(SIGABRT\)"
        r"|^corrupted size vs\. prev_size|^double free or corruption|^malloc\(\): ",
    ),
    _pattern(
        "Killed",
        r"\bSIGKILL\b",
        "the process was killed, mostly for lack of memory",
        "Look at the memory of the pod and of its node; raise the limit.",
        printed=r"exited on signal 9\b|Signal 9 \(SIGKILL\)|^Killed$",
    ),
    _pattern(
        "Terminated",
        r"SignalException: Process \d+ got signal: (?:15|2|1)\b|^KeyboardInterrupt\b",
        "the process was told to end",
        "Look at what ended it: another rank's failure, an eviction, or its launcher.",
        printed=r"Signal 15 \(SIGTERM\)|exited on signal 15\b",
        retryable=True,
        cascade=True,
    ),
    _pattern(
        "ShapeMismatch",
        r"shapes cannot be multiplied|must match the (?:existing )?size|size of tensor a \(\d+\) must match"
        r"|Sizes of tensors must match|incompatible shapes|Incompatible shapes|Expected input batch_size"
        r"|dot_general requires contracting dimensions|shape '\[.{0,60}\]' is invalid for input of size"
        r"|stack expects each tensor to be equal size|expected input\[.{0,60}\] to have \d+ channels",
        "shapes of tensors do not fit each other",
        "Check the model's dimensions against the data's.",
        retryable=False,
    ),
)  # fmt: skip
