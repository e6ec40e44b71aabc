/* bcc wants a kernel version; nothing in our programs depends on it. */
#define LINUX_VERSION_CODE 331264
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
