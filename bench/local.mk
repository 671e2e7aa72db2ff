libzo_a_SOURCES += \
	bench/products.c \
	bench/products.h
