/* Stands in for the kernel build's configuration: bcc includes it before every program. */
#ifndef __SHIM_KCONFIG_H
#define __SHIM_KCONFIG_H
#define CONFIG_BPF_SYSCALL 1
#define CONFIG_64BIT 1
#if defined(__aarch64__)
#define CONFIG_ARM64 1
#else
#define CONFIG_X86_64 1
#define CONFIG_X86 1
#endif
#endif
