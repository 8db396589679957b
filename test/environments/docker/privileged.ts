/**
 * What Docker Engine 20.10 records of `docker create --privileged`, apart from limits that are all 0 or null. Some engines
 * can record such a container and not start one.
 */
export const PRIVILEGED_HOST_CONFIG = {
  Binds: null,
  NetworkMode: "default",
  VolumesFrom: null,
  CapAdd: null,
  CapDrop: null,
  CgroupnsMode: "host",
  GroupAdd: null,
  IpcMode: "private",
  Cgroup: "",
  PidMode: "",
  Privileged: true,
  ReadonlyRootfs: false,
  SecurityOpt: ["label=disable"],
  UTSMode: "",
  UsernsMode: "",
  Runtime: "runc",
  Memory: 0,
  Devices: [],
  DeviceCgroupRules: null,
  DeviceRequests: null,
  PidsLimit: null,
  MaskedPaths: null,
  ReadonlyPaths: null,
};
