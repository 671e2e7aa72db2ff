libzo_a_SOURCES += \
	offload/builder.c \
	offload/builder.h \
	offload/builder_decode.c \
	offload/builder_internal.h \
	offload/checker.c \
	offload/executor.c \
	offload/executor.h \
	offload/executor_cpu.c \
	offload/executor_internal.h \
	offload/executor_serial.c \
	offload/layout.c \
	offload/layout.h \
	offload/order.c \
	offload/order.h \
	offload/plan.c \
	offload/plan.h \
	offload/record.h \
	offload/schedule.c \
	offload/schedule.h \
	offload/unit.c \
	offload/unit.h
