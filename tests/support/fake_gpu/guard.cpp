// PyTorch's CPU build has no CUDA guard and no hooks. With these two it takes `cuda:0` for a device, on which fake
// tensors have shapes and no values; nothing here does anything.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const Device only(DeviceType::CUDA, 0);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return only; }
  Device exchangeDevice(Device) const override { return only; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, only); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, only); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
};

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  void deviceSynchronize(DeviceIndex) const override {}
};

}  // namespace

namespace at {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
REGISTER_CUDA_HOOKS(CUDAHooks)  // PyTorch looks for it by this name
}  // namespace at
